"""Frames by Ray Data's reader of videos, which decodes with decord.

https://docs.ray.io/en/latest/data/api/doc/ray.data.read_videos.html
"""

import logging
from collections import Counter

import ray
from pyarrow.fs import S3FileSystem

from benchmarks.peers.scripts.job import FrameJob, began, read_job, report


def main() -> None:
    job = read_job(FrameJob)
    ray.init(num_cpus=job.cores, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = -1  # a broken file costs its block, and not the run
    store = S3FileSystem(endpoint_override=job.endpoint, access_key=job.key, secret_key=job.secret, region="us-east-1")
    began()
    paths = [uri.removeprefix("s3://") for uri in job.uris]
    start, end, step = (round(seconds * job.fps) for seconds in (job.start_s, job.end_s, job.step_s))
    stride = min(step, round(job.fps))  # it keeps at least one frame a second
    options = {"include_paths": True, "ignore_missing_paths": True, "fps": max(1, round(job.fps / stride))}
    frames = ray.data.read_videos(paths, filesystem=store, override_num_blocks=len(paths), **options)
    frames = frames.filter(
        lambda row: start <= row["frame_index"] < end and (row["frame_index"] - start) % step < stride
    )
    given = Counter(f"s3://{row['path']}" for row in frames.iter_rows())
    for uri in job.uris:
        report(uri, min(given[uri], job.frames), given=given[uri])


if __name__ == "__main__":
    main()
