"""Frames by PyAV in threads, from a signed URL: FFmpeg reads the ranges that it needs, and seeks by the file's index.

https://ffmpeg.org/ffmpeg-protocols.html#http and https://pyav.basswood-io.com/docs/stable/api/stream.html
"""

from concurrent.futures import ThreadPoolExecutor, as_completed
from urllib.parse import urlsplit

import av
import boto3

from benchmarks.peers.scripts.job import FrameJob, began, pick_evenly, read_job, report


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
    s3 = boto3.client("s3", endpoint_url=job.endpoint, aws_access_key_id=job.key, aws_secret_access_key=job.secret)
    began()
    with ThreadPoolExecutor(4 * job.cores) as threads:
        asked = {threads.submit(frames_of, uri, s3, job): uri for uri in job.uris}
        for done in as_completed(asked):
            uri, error = asked.pop(done), done.exception()
            images = [] if error else done.result()
            report(uri, len(images), given=len(images), error=f"{type(error).__name__}: {error}" if error else "")


if __name__ == "__main__":
    main()
