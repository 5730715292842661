"""Frames by Daft: its functions on a column of video files.

https://docs.daft.ai/en/stable/modalities/videos/ and
https://docs.daft.ai/en/stable/api/functions/video_keyframes/
"""

import daft
from daft.functions import video_file, video_frames, video_keyframes
from daft.io import IOConfig, S3Config

from benchmarks.peers.scripts.job import FrameJob, began, pick_evenly, read_job, report


def main() -> None:
    job = read_job(FrameJob)
    place = S3Config(endpoint_url=job.endpoint, key_id=job.key, access_key=job.secret, region_name="us-east-1")
    file = video_file(daft.col("uri"), io_config=IOConfig(s3=place))
    began()
    videos = daft.from_pydict({"uri": job.uris})
    if job.choice == "keyframes":
        rows = videos.select("uri", video_keyframes(file, start_time=job.start_s, end_time=job.end_s).alias("frames"))
        for row in rows.iter_rows(results_buffer_size=job.cores):
            images = [row["frames"][number] for number in pick_evenly(row["frames"], job.frames)]
            report(row["uri"], len(images), given=len(row["frames"]))
    else:
        step_s = job.step_s  # it takes the first frame at or after each
        taken = video_frames(file, start_time=job.start_s, end_time=job.end_s, sample_interval_seconds=step_s)
        for row in videos.select("uri", taken.alias("frames")).iter_rows(results_buffer_size=job.cores):
            report(row["uri"], len(row["frames"][: job.frames]), given=len(row["frames"]))


if __name__ == "__main__":
    main()
