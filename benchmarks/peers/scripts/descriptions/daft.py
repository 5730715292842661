"""Vectors by Daft: frames of a column of video files, one row each, embedded by a custom class.

Its `embed_image` takes the size of vectors from settings that SigLIP's configuration does not have.
https://docs.daft.ai/en/stable/modalities/videos/, https://docs.daft.ai/en/stable/custom-code/cls/ and
https://docs.daft.ai/en/stable/api/functions/cosine_distance/
"""

from pathlib import Path

import daft
import numpy as np
from daft import DataType
from daft.functions import cosine_distance, video_file, video_frames
from daft.io import IOConfig, S3Config

from benchmarks.peers.scripts.descriptions.siglip import Siglip
from benchmarks.peers.scripts.job import DescriptionJob, began, read_job, report_found, report_tag

BATCH = 64


@daft.cls
class Embed:
    def __init__(self, model: str):
        self.model = Siglip(model)

    @daft.method.batch(return_dtype=DataType.list(DataType.float32()), batch_size=BATCH)
    def images(self, images):
        return list(self.model.images(images.to_pylist()))


def embed_all(job: DescriptionJob, kept: str) -> None:
    place = S3Config(endpoint_url=job.endpoint, key_id=job.key, access_key=job.secret, region_name="us-east-1")
    file = video_file(daft.col("uri"), io_config=IOConfig(s3=place))
    frames = video_frames(file, end_time=job.end_s, sample_interval_seconds=job.step_s)
    videos = daft.from_pydict({"uri": job.uris}).into_partitions(job.cores)
    rows = videos.select("uri", frames.alias("frame")).explode("frame")
    rows.select("uri", Embed(job.model).images(daft.col("frame").get("data")).alias("vector")).write_parquet(kept)


def main() -> None:
    job = read_job(DescriptionJob)
    kept, model = f"{job.folder}/vectors", Siglip(job.model)
    began()
    if not Path(kept).exists():
        embed_all(job, kept)
    vectors = daft.read_parquet(f"{kept}/*.parquet")
    size = DataType.fixed_size_list(DataType.float32(), job.dimensions)
    if job.searched:
        vectors = vectors.select("uri", daft.col("vector").cast(size)).collect()
        for text, vector in zip(job.texts, model.texts(job.texts), strict=True):
            far = cosine_distance(daft.col("vector"), daft.lit(vector.tolist()).cast(size))
            for row in vectors.select("uri", far.alias("far")).sort("far").limit(1).iter_rows():
                report_found(text, row["uri"])
        return
    for row in vectors.groupby("uri").agg(daft.col("vector").list_agg()).iter_rows():
        each = np.array(row["vector"])
        report_tag(row["uri"], model.tag(each, job.texts), vectors=len(each))


if __name__ == "__main__":
    main()
