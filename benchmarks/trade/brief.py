"""Longer clips of which a twentieth answers the question: a shape is in them for three seconds of a minute."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice, product
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from benchmarks.trade.clips import MANIFEST_NAME
from tasks.demo.actors import SHAPES, Actor, paint
from tasks.demo.clips import FPS, Encoding, write_clip
from tasks.demo.shapes import draw_colour, draw_shape
from tools.tiny_model.scenes import SCENE_QUESTIONS

if TYPE_CHECKING:
    from pathlib import Path

BRIEF_SEED = 60_000  # distinct from the seeds of training, demo, evaluation and the other clips
BRIEF_CLIPS = 96
LENGTH_S = 60
SHOWN_S = 3
_GOP_S = 5
_MARGIN_S = 2  # at both ends: a sampler that always takes the first frame does not see it by that
# Alone in the picture, twice; and while a white shape is there all the time.
_ASKED = ("colour", "shape", "late")
_DARK = (0, 120)
_WHITE = (245, 245, 245)
_CENTRES = ((14.0, 14.0), (42.0, 14.0), (14.0, 42.0), (42.0, 42.0))
_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("job_id", "video_uri", "prompt"), pl.String),
    "choices": pl.List(pl.String),
    **dict.fromkeys(("answer", "task", "subtask"), pl.String),
    "start_ms": pl.Int64,
    "end_ms": pl.Int64,
}


def make_brief(folder: Path, *, clips: int = BRIEF_CLIPS, seed: int = BRIEF_SEED) -> pl.DataFrame:
    """Write the clips and their manifest, one job per clip.

    Args:
        folder: Folder for `brief-0000.mp4` and so on and `manifest.parquet`; created if missing.
        clips: Number of clips; multiples of 12 ask every question with every answer equally often.
        seed: Determines every pixel.

    Returns:
        The manifest; `subtask` is the kind of question, and `start_ms` and `end_ms` say when the shape is there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    rows = []
    for index, (answer, subtask) in enumerate(islice(cycle(product(range(4), _ASKED)), clips)):
        prompt, choices = SCENE_QUESTIONS[subtask]
        start_s = rng.uniform(_MARGIN_S, LENGTH_S - SHOWN_S - _MARGIN_S)
        path = folder / f"brief-{index:04d}.mp4"
        _write(path, subtask, choices[answer], start_s, rng)
        rows.append(
            {
                "job_id": f"brief-{index:04d}-{subtask}",
                "video_uri": str(path.resolve()),
                "prompt": prompt,
                "choices": list(choices),
                "answer": choices[answer],
                "task": "brief",
                "subtask": subtask,
                "start_ms": round(start_s * 1e3),
                "end_ms": round((start_s + SHOWN_S) * 1e3),
            }
        )
    manifest = pl.DataFrame(rows, schema=_SCHEMA)
    manifest.write_parquet(folder / MANIFEST_NAME)
    return manifest


def _write(path: Path, subtask: str, answer: str, start_s: float, rng: np.random.Generator) -> None:
    when = {"enters": start_s / LENGTH_S, "arrives": (start_s + SHOWN_S) / LENGTH_S}
    if subtask == "late":
        white, other = (_CENTRES[place] for place in rng.permutation(4)[:2])
        actors = [_still(white, _WHITE, rng), replace(_still(other, draw_colour(answer, rng), rng), **when)]
    else:
        shape = draw_shape(rng)
        while shape.truth(subtask) != answer:
            shape = draw_shape(rng)
        actors = [replace(shape.actor(), **when)]
    actors[-1] = replace(actors[-1], leaves=when["arrives"])
    frames = LENGTH_S * FPS
    pixels = paint(actors, np.arange(frames) / frames, rng, background=int(rng.integers(*_DARK)))
    write_clip(path, pixels, Encoding(container="mp4", codec="libx264", gop=_GOP_S * FPS))


def _still(centre: tuple[float, float], rgb: tuple[int, int, int], rng: np.random.Generator) -> Actor:
    radius_px = rng.uniform(8, 12)
    return Actor(shape=str(rng.choice(SHAPES)), rgb=rgb, radius_px=radius_px, start=centre, end=centre)
