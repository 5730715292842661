"""Frames by Pixeltable: keyframes as a view of a table of videos, one row a frame; others as expressions, which seek.

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
    from pixeltable.functions.video import frame_iterator  # noqa: PLC0415

    pxt.create_dir("bench", if_exists="ignore")
    videos = pxt.create_table("bench/videos", {"uri": pxt.String, "video": pxt.Video})
    began()
    status = videos.insert([{"uri": uri, "video": uri} for uri in job.uris], on_error="ignore")
    if job.choice == "uniform":
        times = {f"frame_{index}": index / job.fps for index in job.indices()}
        frames = {name: videos.video.extract_frame(timestamp=time) for name, time in times.items()}
        left = set(job.uris)
        for row in videos.where(videos.video != None).select(videos.uri, **frames).collect():  # noqa: E711 - an expression
            images = [row[name] for name in frames if row[name] is not None]
            report(row["uri"], len(images), given=len(images))
            left.remove(row["uri"])
        for uri in left:
            report(uri, 0, given=0, error=str(status))
        return
    view = pxt.create_view("bench/frames", videos, iterator=frame_iterator(videos.video, keyframes_only=True))
    given = Counter(row["uri"] for row in view.select(view.uri).collect())
    for uri in job.uris:
        numbers = pick_evenly(range(given[uri]), job.frames)
        rows = view.where((view.uri == uri) & view.pos.isin(numbers)).select(view.frame).collect()
        report(uri, len(rows), given=given[uri], error="" if given[uri] else str(status))


if __name__ == "__main__":
    main()
