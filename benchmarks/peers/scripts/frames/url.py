"""Frames by PyAV in threads, from a signed URL: FFmpeg reads the ranges that it needs, and seeks by the file's index.

https://ffmpeg.org/ffmpeg-protocols.html#http and https://pyav.basswood-io.com/docs/stable/api/stream.html
"""

from urllib.parse import urlsplit

import av

from benchmarks.peers.scripts.frames.threads import take_all
from benchmarks.peers.scripts.job import FrameJob, pick_evenly, read_job


def frames_of(uri: str, s3, job: FrameJob) -> list:
    place = urlsplit(uri)
    url = s3.generate_presigned_url("get_object", {"Bucket": place.netloc, "Key": place.path[1:]})
    with av.open(url, options={"multiple_requests": "1"}, timeout=30) as container:
        stream = container.streams.video[0]
        unit, start = stream.time_base, stream.start_time or 0
        if job.choice == "keyframes":
            # An index has times of decoding, which come before those of showing.
            entries = [entry.timestamp for entry in stream.index_entries if entry.is_keyframe]
            wanted = [time for time in entries if job.is_whole or job.start_s <= (time - start) * unit < job.end_s]
            times = [wanted[number] for number in pick_evenly(wanted, job.frames)]
        else:
            times = [round(index / job.fps / unit) for index in job.indices()]
        images = []
        for time in times:
            container.seek(time, stream=stream)
            images.append(next(f for f in container.decode(stream) if f.pts >= time).to_ndarray(format="rgb24"))
        return images


def main() -> None:
    job = read_job(FrameJob)
    take_all(job, frames_of, threads=4 * job.cores)


if __name__ == "__main__":
    main()
