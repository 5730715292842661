"""Frames by Pixeltable: a view of a table of videos, one row a frame.

https://docs.pixeltable.com/platform/iterators and https://docs.pixeltable.com/sdk/latest/video
"""

import os
from collections import Counter

from benchmarks.peers.scripts.job import FrameJob, began, pick_evenly, read_job, report


def main() -> None:
    job = read_job(FrameJob)
    os.environ |= {"PIXELTABLE_HOME": job.folder, "AWS_ENDPOINT_URL": job.endpoint, "AWS_ACCESS_KEY_ID": job.key}
    os.environ |= {"AWS_SECRET_ACCESS_KEY": job.secret, "AWS_DEFAULT_REGION": "us-east-1"}
    import pixeltable as pxt  # noqa: PLC0415 - reads its settings when it is imported
    from pixeltable.functions.video import clip, frame_iterator  # noqa: PLC0415

    pxt.create_dir("bench", if_exists="ignore")
    videos = pxt.create_table("bench/videos", {"uri": pxt.String, "video": pxt.Video})
    began()
    status = videos.insert([{"uri": uri, "video": uri} for uri in job.uris], on_error="ignore")
    options = {"keyframes_only": True} if job.choice == "keyframes" else {"num_frames": job.frames}
    part = videos.video if job.is_whole else clip(videos.video, start_time=job.start_s, end_time=job.end_s)
    frames = pxt.create_view("bench/frames", videos, iterator=frame_iterator(part, **options))
    given = Counter(row["uri"] for row in frames.select(frames.uri).collect())
    for uri in job.uris:
        numbers = pick_evenly(range(given[uri]), job.frames)
        rows = frames.where((frames.uri == uri) & frames.pos.isin(numbers)).select(frames.frame).collect()
        report(uri, len(rows), given=given[uri], error="" if given[uri] else str(status))


if __name__ == "__main__":
    main()
