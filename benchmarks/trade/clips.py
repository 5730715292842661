"""The benchmark's clips and their manifest: every question and answer equally often for each number of keyframes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice, product
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tasks.demo.clips import FPS, MANIFEST_NAME, Encoding, write_clip, write_manifest
from tools.tiny_model.scenes import SCENE_QUESTIONS, STILL_TASKS, draw_scene

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 40_000  # distinct from the seeds of training, demo and evaluation
CLIPS = 1_120  # seven blocks
FIT_SEED_OFFSET = 10_000  # from the measured clips' seed to that of the clips to fit on
_LENGTHS_S = (4, 5, 6, 7, 8)  # whole seconds, so that every number of keyframes divides the frames
KEYFRAMES = (1, 2, 4, 8, 16)
SCENE, MOTION = "scene", "motion"
# Two kinds of questions about scenes and four about motion: those about scenes appear twice.
_ASKED = ("colour", "direction", "shape", "count", "colour", "order", "shape", "late")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Content of one clip.

    Attributes:
        subtask: One of SCENE_QUESTIONS.
        answer: The right choice.
        keyframes: Number of keyframes of the clip.
    """

    subtask: str
    answer: str
    keyframes: int

    @property
    def task(self) -> str:
        """`scene` where any frame answers the question, else `motion`."""
        return SCENE if self.subtask in STILL_TASKS else MOTION


def block() -> list[Cell]:
    """Return each combination once, alternating scene and motion."""
    return [
        Cell(subtask=subtask, answer=SCENE_QUESTIONS[subtask][1][answer], keyframes=keyframes)
        for answer, subtask, keyframes in product(range(4), _ASKED, KEYFRAMES)
    ]


def mix(clips: int) -> list[Cell]:
    """Repeat the block; fully balanced at multiples of its length, 160."""
    return list(islice(cycle(block()), clips))


def make_trade(folder: Path, *, clips: int, seed: int = SEED) -> pl.DataFrame:
    """Write the benchmark's clips, and a manifest with one job per clip.

    `task` is scene or motion, `subtask` the kind of question; the columns `keyframes`, `length_s` and `frames` describe
    the clip, and a run ignores them. Multiples of 160 clips are fully balanced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    rows = []
    for index, cell in enumerate(mix(clips)):
        name = f"trade-{index:04d}.mp4"
        length_s = int(rng.choice(_LENGTHS_S))
        _write(folder / name, cell, rng, frames=length_s * FPS)
        prompt, choices = SCENE_QUESTIONS[cell.subtask]
        rows.append(
            {
                "job_id": f"trade-{index:04d}-{cell.subtask}",
                "video_uri": str(folder.resolve() / name),
                "prompt": prompt,
                "choices": list(choices),
                "answer": cell.answer,
                "task": cell.task,
                "subtask": cell.subtask,
                "keyframes": cell.keyframes,
                "length_s": length_s,
                "frames": length_s * FPS,
            }
        )
    return write_manifest(folder / MANIFEST_NAME, rows, keyframes=pl.Int64, length_s=pl.Int64, frames=pl.Int64)


def fit_clips(clips: int) -> int:
    """Return the number of clips to fit on: half as many, rounded up to full blocks."""
    return -(-clips // (2 * len(block()))) * len(block())


def kept_trade(folder: Path, *, clips: int, seed: int) -> pl.DataFrame:
    """Return the benchmark of a seed, from an earlier call where its number of clips is the same."""
    return keep(folder / f"seed-{seed}", clips, lambda target: make_trade(target, clips=clips, seed=seed))


def keep(target: Path, clips: int, make: Callable[[Path], pl.DataFrame]) -> pl.DataFrame:
    """Return the manifest of clips in a folder, which are made unless that many are there."""
    left = target / MANIFEST_NAME  # written last
    if left.exists() and (manifest := pl.read_parquet(left)).height == clips:
        name = pl.col("video_uri").str.split("/").list.last()
        return manifest.with_columns(video_uri=f"{target.resolve()}/" + name)  # the folder may have been moved
    return make(target)


def _write(path: Path, cell: Cell, rng: np.random.Generator, *, frames: int) -> None:
    scene = draw_scene(cell.subtask, cell.answer, rng)
    pixels = scene.render(np.linspace(0, 1, frames), rng)
    write_clip(path, pixels, Encoding(container="mp4", codec="libx264", gop=frames // cell.keyframes))
