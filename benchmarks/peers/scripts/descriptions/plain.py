"""Vectors of frames that PyAV decodes in threads, in one NumPy file, which later runs read.

https://pyav.basswood-io.com/docs/stable/cookbook/basics.html and https://numpy.org/doc/stable/reference/generated/numpy.savez.html
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import av
import boto3
import numpy as np

from benchmarks.peers.scripts.descriptions.siglip import Siglip
from benchmarks.peers.scripts.job import DescriptionJob, began, read_job, report_found, report_tag


def frames_of(uri: str, s3, job: DescriptionJob) -> list:
    place, wanted = urlsplit(uri), set(job.indices())
    with tempfile.NamedTemporaryFile(suffix=".mp4", dir=job.folder) as file:
        s3.download_file(place.netloc, place.path[1:], file.name)
        with av.open(file.name) as container:  # so many are wanted that it is quicker to decode all than to seek each
            decoded = enumerate(container.decode(video=0))
            return [frame.to_ndarray(format="rgb24") for number, frame in decoded if number in wanted]


def embed_all(job: DescriptionJob, model: Siglip) -> dict:
    s3 = boto3.client("s3", endpoint_url=job.endpoint, aws_access_key_id=job.key, aws_secret_access_key=job.secret)
    with ThreadPoolExecutor(job.cores) as threads:
        decoded = threads.map(lambda uri: frames_of(uri, s3, job), job.uris)
        return {uri: model.images(frames) for uri, frames in zip(job.uris, decoded, strict=True)}


def main() -> None:
    job = read_job(DescriptionJob)
    model, kept = Siglip(job.model), Path(job.folder) / "vectors.npz"
    began()
    vectors = dict(np.load(kept)) if kept.exists() else embed_all(job, model)
    if not kept.exists():
        np.savez(kept, **vectors)
    if job.searched:
        uris = [uri for uri, each in vectors.items() for _ in each]
        scores = model.texts(job.texts) @ np.concatenate(list(vectors.values())).T
        for text, best in zip(job.texts, scores.argmax(axis=1), strict=True):
            report_found(text, uris[best])
        return
    for uri, each in vectors.items():
        report_tag(uri, model.tag(each, job.texts), vectors=len(each))


if __name__ == "__main__":
    main()
