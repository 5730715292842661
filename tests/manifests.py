"""Manifests with their videos, in a folder or on S3."""

import numpy as np
import polars as pl

from reelabel.sources.object_store import ObjectStore
from tasks.demo.clips import Encoding, write_clip, write_manifest

COLOURS = {"red": (220, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 220)}


def upload(folder, store, root):
    """Upload the files of a folder, each to its name below a URI."""
    objects = ObjectStore(store)
    for path in folder.iterdir():
        objects.replace(f"{root}/{path.name}", path.read_bytes())


def store_colours(folder, store):
    """Upload a clip of each colour; return the URI of a manifest with a question about each."""
    root, rows = f"{store.uri}/{folder.name}", []
    for name, colour in COLOURS.items():
        pixels = np.full((48, 56, 56, 3), colour, np.uint8)
        write_clip(folder / f"{name}.mp4", pixels, Encoding(container="mp4", codec="libx264", gop=12))
        job = {"job_id": name, "video_uri": f"{root}/{name}.mp4", "prompt": "Which colour is it?"}
        rows.append(job | {"choices": list(COLOURS), "answer": name, "task": "colour", "subtask": "mp4"})
    write_manifest(folder / "manifest.parquet", rows)
    upload(folder, store, root)
    return f"{root}/manifest.parquet"


def write_numbered_jobs(path, uris):
    """Write a manifest whose questions differ by their number alone; return its path as text."""
    numbers = range(len(uris))
    rows = {
        "job_id": [f"j{number}" for number in numbers],
        "video_uri": uris,
        "prompt": [f"Is it number {number}?" for number in numbers],
        "choices": [["yes", "no"]] * len(uris),
    }
    pl.DataFrame(rows).write_parquet(path)
    return str(path)
