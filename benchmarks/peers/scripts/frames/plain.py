"""Frames by PyAV in threads: each video is downloaded, and only what is wanted is decoded.

Keyframes are listed by demuxing, which decodes nothing: https://pyav.basswood-io.com/docs/stable/cookbook/basics.html
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from urllib.parse import urlsplit

import av
import boto3

from benchmarks.peers.scripts.job import FrameJob, began, pick_evenly, read_job, report


def keyframe_times(container, stream, job: FrameJob) -> list[int]:
    wanted = [
        p.pts for p in container.demux(stream) if p.is_keyframe and job.start_s <= p.pts * p.time_base < job.end_s
    ]
    return [wanted[number] for number in pick_evenly(wanted, job.frames)]


def frames_of(path: Path, job: FrameJob) -> list:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        if job.choice == "keyframes":
            times = keyframe_times(container, stream, job)
        else:
            times = [round(index / job.fps / stream.time_base) for index in job.indices()]
        images = []
        for time in times:
            container.seek(time, stream=stream)
            images.append(next(f for f in container.decode(stream) if f.pts >= time).to_ndarray(format="rgb24"))
        return images


def fetch_and_decode(uri: str, s3, job: FrameJob) -> list:
    place = urlsplit(uri)
    with tempfile.NamedTemporaryFile(suffix=".mp4", dir=job.folder) as file:
        s3.download_file(place.netloc, place.path[1:], file.name)
        return frames_of(Path(file.name), job)


def main() -> None:
    job = read_job(FrameJob)
    s3 = boto3.client("s3", endpoint_url=job.endpoint, aws_access_key_id=job.key, aws_secret_access_key=job.secret)
    began()
    with ThreadPoolExecutor(2 * job.cores) as threads:
        asked = {threads.submit(fetch_and_decode, uri, s3, job): uri for uri in job.uris}
        for done in as_completed(asked):
            uri, error = asked.pop(done), done.exception()
            images = [] if error else done.result()
            report(uri, len(images), given=len(images), error=f"{type(error).__name__}: {error}" if error else "")


if __name__ == "__main__":
    main()
