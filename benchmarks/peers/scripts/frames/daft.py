"""Frames by Daft: its functions on a column of video files.

https://docs.daft.ai/en/stable/modalities/videos/ and
https://docs.daft.ai/en/stable/api/functions/video_keyframes/
"""

import daft
from daft.functions import to_list, video_file, video_frames, video_keyframes
from daft.functions.video import get_video_frame_by_idx
from daft.io import IOConfig, S3Config

from benchmarks.peers.scripts.job import FrameJob, began, pick_evenly, read_job, report

SOME_S = 60.0  # of a longer part, it is quicker to seek each frame than to decode all of them


def main() -> None:
    job = read_job(FrameJob)
    place = S3Config(endpoint_url=job.endpoint, key_id=job.key, access_key=job.secret, region_name="us-east-1")
    file = video_file(daft.col("uri"), io_config=IOConfig(s3=place))
    part = {"start_time": job.start_s, "end_time": job.end_s}
    if job.choice == "keyframes":
        taken = video_keyframes(file, **part)
    elif job.end_s - job.start_s > SOME_S:
        taken = to_list(*(get_video_frame_by_idx(file, index) for index in job.indices()))
    else:  # the first frame at or after each multiple of the step
        taken = video_frames(file, **part, sample_interval_seconds=job.step_s)
    began()
    videos = daft.from_pydict({"uri": job.uris}).select("uri", taken.alias("frames"))
    for row in videos.iter_rows(results_buffer_size=job.cores):
        images = [row["frames"][number] for number in pick_evenly(row["frames"], job.frames)]
        report(row["uri"], len(images), given=len(row["frames"]))


if __name__ == "__main__":
    main()
