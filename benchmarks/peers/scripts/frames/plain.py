"""Frames by PyAV in threads: each video is downloaded, and only what is wanted is decoded.

Keyframes are listed by demuxing, which decodes nothing: https://pyav.basswood-io.com/docs/stable/cookbook/basics.html
"""

import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import av

from benchmarks.peers.scripts.frames.threads import take_all
from benchmarks.peers.scripts.job import FrameJob, pick_evenly, read_job


def keyframe_times(container, stream, job: FrameJob) -> list[int]:
    wanted = [
        p.pts for p in container.demux(stream) if p.is_keyframe and job.start_s <= p.pts * p.time_base < job.end_s
    ]
    return [wanted[number] for number in pick_evenly(wanted, job.frames)]


def frames_of(path: Path, job: FrameJob) -> list:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
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
    take_all(job, fetch_and_decode, threads=2 * job.cores)


if __name__ == "__main__":
    main()
