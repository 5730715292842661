"""Vectors by DataChain: a function over a column of video files, whose frames it seeks; saved as a dataset.

https://docs.datachain.ai/references/data-types/videofile and https://docs.datachain.ai/guide/vector-search/
"""

import os
from collections.abc import Iterator

import numpy as np

from benchmarks.peers.scripts.descriptions.siglip import Siglip
from benchmarks.peers.scripts.job import DescriptionJob, began, read_job, report_found, report_tag


def main() -> None:
    job = read_job(DescriptionJob)
    os.environ |= {"DATACHAIN_ROOT_DIR": job.folder, "DATACHAIN_NO_ANALYTICS": "1"}
    import datachain as dc  # noqa: PLC0415 - reads its settings when it is imported
    from datachain.query.session import Session  # noqa: PLC0415

    indices, model = job.indices(), Siglip(job.model)

    def embed(file: dc.VideoFile, embedder: Siglip) -> Iterator[tuple[str, list[float]]]:
        for vector in embedder.images([file.get_frame(index).get_np() for index in indices]):
            yield file.path, vector.tolist()

    began()
    store = {"aws_endpoint_url": job.endpoint, "aws_key": job.key, "aws_secret": job.secret}
    folder = job.uris[0].rpartition("/")[0]
    with Session("bench", client_config=store) as session:
        if "vectors" not in dc.datasets(session=session, column="kept").to_values("kept.name"):
            # Without versions: for those, this S3 server lists other ETags of large objects than it serves them with.
            videos = dc.read_storage(f"{folder}/", type="video", session=session, versions=False)
            videos = videos.filter(dc.C("file.path").glob("*.mp4")).setup(embedder=lambda: Siglip(job.model))
            frames = videos.settings(prefetch=job.cores, cache=True).gen(
                embed, output={"path": str, "vector": list[float]}
            )
            frames.save("vectors")
        rows = dc.read_dataset("vectors", session=session)
        if job.searched:
            for text, vector in zip(job.texts, model.texts(job.texts), strict=True):
                far = rows.mutate(far=dc.func.cosine_distance("vector", vector.tolist()))
                for (path,) in far.order_by("far").limit(1).to_iter("path"):
                    report_found(text, f"{folder}/{path.rpartition('/')[2]}")
            return
        vectors = {}
        for path, vector in rows.to_iter("path", "vector"):
            vectors.setdefault(path, []).append(vector)
    for path, each in vectors.items():
        report_tag(f"{folder}/{path.rpartition('/')[2]}", model.tag(np.array(each), job.texts), vectors=len(each))


if __name__ == "__main__":
    main()
