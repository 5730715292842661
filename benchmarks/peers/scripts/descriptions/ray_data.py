"""Vectors by Ray Data: its reader of videos decodes with decord, and an actor embeds batches of frames.

https://docs.ray.io/en/latest/data/api/doc/ray.data.read_videos.html and https://docs.ray.io/en/latest/data/batch_inference.html
"""

import logging
from pathlib import Path

import numpy as np
import ray
from pyarrow.fs import S3FileSystem

from benchmarks.peers.scripts.descriptions.siglip import Siglip
from benchmarks.peers.scripts.job import DescriptionJob, began, read_job, report_found, report_tag

BATCH = 64
FPS = 2  # whole frames a second that are not fewer than those that are wanted


class Embed:
    def __init__(self, model: str):
        self.model = Siglip(model)

    def __call__(self, batch):
        return {"path": batch["path"], "vector": self.model.images(batch["frame"])}


def nearest(job: DescriptionJob) -> list:
    """Return the numbers of the frames that it keeps which are nearest to the wanted ones."""
    stride = round(job.fps / FPS)
    return [stride * round(index / stride) for index in job.indices()]


def embed_all(job: DescriptionJob, kept: str) -> None:
    store = S3FileSystem(endpoint_override=job.endpoint, access_key=job.key, secret_key=job.secret, region="us-east-1")
    paths, wanted = [uri.removeprefix("s3://") for uri in job.uris], set(nearest(job))
    frames = ray.data.read_videos(paths, filesystem=store, include_paths=True, fps=FPS)
    frames = frames.filter(lambda row: row["frame_index"] in wanted)
    embedded = frames.map_batches(
        Embed, fn_constructor_args=[job.model], batch_size=BATCH, compute=ray.data.ActorPoolStrategy(size=1)
    )
    embedded.write_parquet(kept)


def main() -> None:
    job = read_job(DescriptionJob)
    ray.init(num_cpus=2 * job.cores, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    kept, model = f"{job.folder}/vectors", Siglip(job.model)
    began()
    if not Path(kept).exists():
        embed_all(job, kept)
    rows = ray.data.read_parquet(kept).to_pandas()
    if job.searched:
        scores = model.texts(job.texts) @ np.stack(rows["vector"]).T
        for text, best in zip(job.texts, scores.argmax(axis=1), strict=True):
            report_found(text, f"s3://{rows['path'][best]}")
        return
    for path, each in rows.groupby("path")["vector"]:
        report_tag(f"s3://{path}", model.tag(np.stack(each), job.texts), vectors=len(each))


if __name__ == "__main__":
    main()
