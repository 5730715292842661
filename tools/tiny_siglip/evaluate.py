"""Measure an image-text model on fresh clips: `python -m tools.tiny_siglip.evaluate`.

Each clip is tagged with the bank of the demo's shapes by the towers and the pooling of `describe`. Black clips are the
control: they must be tagged no better than by chance.
"""

from __future__ import annotations

import argparse
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import av
import numpy as np
from rich.console import Console

from tasks.demo.captions import SHAPE_BANK
from tasks.demo.clips import ENCODINGS, draw_clip, write_clip
from tasks.description.chunks import cut_chunks
from tasks.description.embeddings import Embeddings
from tasks.description.pooling import EmbeddedBank, describe_pooled, pool_chunks
from tasks.embedding.identity import TINY_TOWERS
from tasks.embedding.process import TowersProcess
from tasks.embedding.protocol import TowersConfig

if TYPE_CHECKING:
    import numpy.typing as npt

EVALUATION_SEED = 30_000  # differs from those of training and of the demo
TARGET = 0.95
MOST_ON_BLACK = 0.15  # sixteen tags: 0.0625 by chance
_FRAMES = 16
_START_TIMEOUT_S = 600


def tag_accuracies(towers: TowersProcess, folder: Path, *, clips: int, seed: int = EVALUATION_SEED) -> dict[str, float]:
    """Return the share of clips whose first tag is right, by variant: `clips` and `black`.

    Args:
        towers: The model.
        folder: For the encoded clips.
        clips: Number of clips.
        seed: Determines every pixel.
    """
    rng = np.random.default_rng(seed)
    bank = EmbeddedBank(texts=SHAPE_BANK, vectors=towers.embed_texts(SHAPE_BANK))
    right = {"clips": 0, "black": 0}
    for index, encoding in enumerate(islice(cycle(ENCODINGS), clips)):
        shape, pixels = draw_clip(rng)
        truth = f"a {shape.colour} {shape.shape}"
        for variant, shown in (("clips", pixels), ("black", np.zeros_like(pixels))):
            path = folder / f"{variant}-{index:04d}.{encoding.container}"
            write_clip(path, shown, encoding)
            right[variant] += first_tag(towers, path, bank) == truth
    return {variant: count / clips for variant, count in right.items()}


def first_tag(towers: TowersProcess, path: Path, bank: EmbeddedBank) -> str:
    """Tag a clip by sixteen frames of it."""
    frames, pts_ms = read_clip(path)
    picks = np.unique(np.linspace(0, len(frames) - 1, _FRAMES).round().astype(int))
    embeddings = Embeddings(vectors=towers.embed_frames([frames[picks]]), pts_ms=pts_ms[picks])
    chunks = cut_chunks(float(pts_ms[-1]) / 1000, chunk_s=10)
    return describe_pooled(pool_chunks(embeddings, chunks), chunks, tags=bank, captions=bank, top_k=1).tags[0].text


def read_clip(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Decode a short clip; return its frames (T, H, W, 3) and their times in milliseconds."""
    with av.open(path) as container:
        frames = [(frame.to_ndarray(format="rgb24"), frame.time) for frame in container.decode(video=0)]
    return np.stack([image for image, _ in frames]), np.array([round(time * 1000) for _, time in frames])


def main() -> None:
    """Print the accuracies of a model; exit with 1 if one misses its target."""
    parser = argparse.ArgumentParser(description="Tag fresh clips of moving shapes, and black ones.")
    parser.add_argument("--model", default=str(TINY_TOWERS), help="model folder or hub name; by default the demo's")
    parser.add_argument("--clips", type=int, default=200)
    arguments = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        config = TowersConfig(model=arguments.model)
        with TowersProcess(config, log_path=folder / "towers.log", start_timeout_s=_START_TIMEOUT_S) as towers:
            found = tag_accuracies(towers, folder, clips=arguments.clips)
    Console().print(f"{arguments.clips} clips: tags {found['clips']:.3f} right; black clips: {found['black']:.3f}")
    raise SystemExit(found["clips"] < TARGET or found["black"] > MOST_ON_BLACK)


if __name__ == "__main__":
    main()
