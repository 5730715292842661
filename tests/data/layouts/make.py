"""Make the layouts of this folder, each with the writer of its own ecosystem.

Their writers bring PyTorch and more, so this runs once, in an environment of its own:

    pip install webdataset==1.0.2 'datasets<5' lerobot==0.4.4
    python tests/data/layouts/make.py tests/data/layouts
"""

import io
import shutil
import sys
from pathlib import Path

import av
import datasets
import numpy as np
import webdataset
from lerobot.datasets.lerobot_dataset import LeRobotDataset

SIZE = (64, 48)
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220)}


def clip(colour, frames=12):
    """Return a short MP4 of one colour."""
    sink = io.BytesIO()
    with av.open(sink, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=12, options={"g": "6", "crf": "30"})
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for _ in range(frames):
            pixels = np.full((SIZE[1], SIZE[0], 3), COLOURS[colour], np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return sink.getvalue()


def make_webdataset(folder):
    """Two shards of samples: a video with its metadata as JSON, one with a text beside it."""
    folder.mkdir()
    with webdataset.ShardWriter(str(folder / "shard-%03d.tar"), maxcount=2, verbose=0) as writer:
        for number, colour in enumerate(COLOURS):
            sample = {
                "__key__": f"clips/{number:04}",
                "mp4": clip(colour),
                "json": {"colour": colour, "number": number},
            }
            writer.write(sample | ({"txt": "the last one"} if colour == "blue" else {}))


def make_hugging_face(folder):
    """Videos as structs of bytes and path, as `datasets.Video` stores them; and as a column of bytes."""
    videos = [{"bytes": clip(colour), "path": f"{colour}.mp4"} for colour in COLOURS]
    rows = {"video": videos, "caption": [f"a {colour} clip" for colour in COLOURS], "label": list(range(3))}
    features = datasets.Features(
        {"video": datasets.Video(decode=False), "caption": datasets.Value("string"), "label": datasets.Value("int64")}
    )
    datasets.Dataset.from_dict(rows, features=features).to_parquet(folder / "struct.parquet")
    plain = {"mp4": [each["bytes"] for each in videos], "question": ["Which colour?"] * 3, "answer": list(COLOURS)}
    features = datasets.Features(
        {"mp4": datasets.Value("binary"), "question": datasets.Value("string"), "answer": datasets.Value("string")}
    )
    datasets.Dataset.from_dict(plain, features=features).to_parquet(folder / "binary.parquet")


def make_lerobot(folder):
    """Three episodes of two cameras, which LeRobot 3 writes one after another into one MP4 a camera."""
    shape = (SIZE[1], SIZE[0], 3)
    camera = {"dtype": "video", "shape": shape, "names": ["height", "width", "channels"]}
    features = {
        "observation.images.top": camera,
        "observation.images.wrist": camera,
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    }
    dataset = LeRobotDataset.create(
        repo_id="reelabel/cubes",
        fps=12,
        root=folder,
        robot_type="arm",
        features=features,
        use_videos=True,
        vcodec="h264",
    )
    for number, colour in enumerate(COLOURS):
        for frame in range(12 + 6 * number):
            image = np.full(shape, COLOURS[colour], np.uint8)
            dataset.add_frame(
                {
                    "observation.images.top": image,
                    "observation.images.wrist": 255 - image,
                    "action": np.array([frame, number], np.float32),
                    "task": f"Pick up the {colour} cube",
                }
            )
        dataset.save_episode()
    dataset.finalize()
    (folder / "meta/stats.json").unlink()  # figures for training, which no reader of videos needs


def main(root):
    """Make all of them below `root`."""
    for name in ("webdataset", "hugging_face", "lerobot"):
        shutil.rmtree(root / name, ignore_errors=True)
    make_webdataset(root / "webdataset")
    (root / "hugging_face").mkdir()
    make_hugging_face(root / "hugging_face")
    make_lerobot(root / "lerobot")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
