"""The threads of the plain scripts: each takes the frames of one video after another."""

from concurrent.futures import ThreadPoolExecutor, as_completed

import boto3

from benchmarks.peers.scripts.job import FrameJob, began, report


def take_all(job: FrameJob, frames_of, *, threads: int) -> None:
    """Call `frames_of(uri, s3, job)` for every video, and report what comes of it."""
    s3 = boto3.client("s3", endpoint_url=job.endpoint, aws_access_key_id=job.key, aws_secret_access_key=job.secret)
    began()
    with ThreadPoolExecutor(threads) as pool:
        asked = {pool.submit(frames_of, uri, s3, job): uri for uri in job.uris}
        for done in as_completed(asked):
            uri, error = asked.pop(done), done.exception()
            images = [] if error else done.result()
            report(uri, len(images), given=len(images), error=f"{type(error).__name__}: {error}" if error else "")
