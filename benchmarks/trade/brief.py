"""Generates longer clips, a twentieth of which answers the question: a shape is visible for three seconds."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice, product
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from benchmarks.trade.clips import SEED
from tasks.demo.actors import SHAPES, Actor, paint
from tasks.demo.clips import FPS, MANIFEST_NAME, Encoding, write_clip, write_manifest
from tasks.demo.shapes import draw_colour, draw_shape
from tools.tiny_model.scenes import SCENE_QUESTIONS

if TYPE_CHECKING:
    from pathlib import Path

LENGTH_S = 60
SHOWN_S = 3
# Of a shape that is alone in the picture, twice, and of one beside a white shape that stays there.
_ASKED = ("colour", "shape", "late")
_GOP_S = 5
_MARGIN_S = 2  # at both ends: a sampler that always takes the first frame does not see it by that
_DARK = (0, 120)
_WHITE = (245, 245, 245)
_CENTRES = ((14.0, 14.0), (42.0, 14.0), (14.0, 42.0), (42.0, 42.0))


def make_brief(folder: Path, *, clips: int, seed: int = SEED) -> pl.DataFrame:
    """Write the clips and their manifest, one job per clip; `start_ms` and `end_ms` say when the shape is there.

    Multiples of 12 clips ask every question with every answer equally often.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    rows = []
    for index, (answer, subtask) in enumerate(islice(cycle(product(range(4), _ASKED)), clips)):
        path = folder / f"brief-{index:04d}.mp4"
        question, actors = _draw(subtask, answer, rng)
        _write(path, actors, rng)
        rows.append(
            question
            | {
                "job_id": f"brief-{index:04d}-{subtask}",
                "video_uri": str(path.resolve()),
                "task": "brief",
                "subtask": subtask,
                "start_ms": round(actors[0].enters * LENGTH_S * 1e3),
                "end_ms": round(actors[0].leaves * LENGTH_S * 1e3),
            }
        )
    return write_manifest(folder / MANIFEST_NAME, rows, start_ms=pl.Int64, end_ms=pl.Int64)


def _draw(subtask: str, answer: int, rng: np.random.Generator) -> tuple[dict[str, Any], list[Actor]]:
    """Draw a shape that is there for three seconds, first, and whatever else is there."""
    prompt, choices = SCENE_QUESTIONS[subtask]
    start_s = rng.uniform(_MARGIN_S, LENGTH_S - SHOWN_S - _MARGIN_S)
    actors = []
    if subtask == "late":
        places = rng.permutation(4)
        brief = _still(_CENTRES[places[0]], draw_colour(choices[answer], rng), rng)
        actors.append(_still(_CENTRES[places[1]], _WHITE, rng))
    else:
        shape = draw_shape(rng)
        while shape.truth(subtask) != choices[answer]:
            shape = draw_shape(rng)
        brief = shape.actor()
    question = {"prompt": prompt, "choices": list(choices), "answer": choices[answer]}
    return question, [_from(brief, start_s), *actors]


def _from(actor: Actor, start_s: float) -> Actor:
    """Return an actor that is there for three seconds."""
    end = (start_s + SHOWN_S) / LENGTH_S
    return replace(actor, enters=start_s / LENGTH_S, arrives=end, leaves=end)


def _still(centre: tuple[float, float], rgb: tuple[int, int, int], rng: np.random.Generator) -> Actor:
    radius_px = rng.uniform(8, 12)
    return Actor(shape=str(rng.choice(SHAPES)), rgb=rgb, radius_px=radius_px, start=centre, end=centre)


def _write(path: Path, actors: list[Actor], rng: np.random.Generator) -> None:
    frames = LENGTH_S * FPS
    pixels = paint(actors, np.arange(frames) / frames, rng, background=int(rng.integers(*_DARK)))
    write_clip(path, pixels, Encoding(container="mp4", codec="libx264", gop=_GOP_S * FPS))
