"""Vectors by Pixeltable: a view of a table of videos, one row a frame, with an embedding index.

https://docs.pixeltable.com/platform/iterators and https://docs.pixeltable.com/platform/embedding-indexes
"""

import os

import numpy as np

from benchmarks.peers.scripts.job import DescriptionJob, began, read_job, report_found, report_tag


def main() -> None:
    job = read_job(DescriptionJob)
    os.environ |= {"PIXELTABLE_HOME": f"{job.folder}/home", "AWS_ENDPOINT_URL": job.endpoint, "MODEL": job.model}
    os.environ |= {"AWS_ACCESS_KEY_ID": job.key, "AWS_SECRET_ACCESS_KEY": job.secret, "AWS_DEFAULT_REGION": "us-east-1"}
    import pixeltable as pxt  # noqa: PLC0415 - reads its settings when it is imported
    from pixeltable.functions.video import frame_iterator  # noqa: PLC0415

    from benchmarks.peers.scripts.descriptions.pixeltable_embed import embed_image, embed_text, model  # noqa: PLC0415

    pxt.create_dir("bench", if_exists="ignore")
    videos = pxt.create_table("bench/videos", {"uri": pxt.String, "video": pxt.Video}, if_exists="ignore")
    frames = frame_iterator(videos.video, fps=1 / job.step_s)
    view = pxt.create_view("bench/frames", videos, iterator=frames, if_exists="ignore")
    view.add_embedding_index("frame", image_embed=embed_image, string_embed=embed_text, if_exists="ignore")
    began()
    known = {row["uri"] for row in videos.select(videos.uri).collect()}
    if new := [{"uri": uri, "video": uri} for uri in job.uris if uri not in known]:
        videos.insert(new, on_error="ignore")
    if job.searched:
        for text in job.texts:
            near = view.frame.similarity(string=text)
            for row in view.order_by(near, asc=False).limit(1).select(view.uri).collect():
                report_found(text, row["uri"])
        return
    vectors = {}
    for row in view.select(view.uri, vector=view.frame.embedding()).collect():
        vectors.setdefault(row["uri"], []).append(row["vector"])
    for uri, each in vectors.items():
        report_tag(uri, model().tag(np.stack(each).astype(np.float32), job.texts), vectors=len(each))


if __name__ == "__main__":
    main()
