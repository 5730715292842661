"""Training scenes with known answers, and the instants at which each answer is visible."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tasks.demo.actors import SHAPES, SIDE_PX, Actor, paint
from tasks.demo.shapes import COLOURS, QUESTIONS, draw_colour, draw_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

COUNTS = ("one", "two", "three", "four")
SCENE_QUESTIONS = QUESTIONS | {
    "count": ("How many shapes are there at the end?", COUNTS),
    "order": ("Which colour appears first?", tuple(COLOURS)),
    "late": ("Which colour enters late?", tuple(COLOURS)),
}
STILL_TASKS = ("colour", "shape")  # any frame answers them

_ALWAYS = (0.0, math.inf)
_MOVED = 0.1  # fraction of the clip after which the direction is visible
_DARK = (0, 120)  # backgrounds on which white is visible
_QUADRANTS = ((14.0, 14.0), (42.0, 14.0), (14.0, 42.0), (42.0, 42.0))
_JITTER_PX = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The content of a clip, with known answers.

    Attributes:
        truths: The correct answer to each question that applies to it.
        evidence: By question, the interval [since, until) of which at least one instant must be sampled, in addition
            to the first frame, which every sampler includes.
    """

    background: int
    actors: tuple[Actor, ...]
    truths: dict[str, str]
    evidence: dict[str, tuple[float, float]]

    def render(self, fractions: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
        """Paint the scene at some instants; see `paint`."""
        return paint(self.actors, fractions, rng, background=self.background)

    def shows_answer(self, task: str, fractions: npt.NDArray[np.float64]) -> bool:
        """Return whether frames at these instants show the answer."""
        since, until = self.evidence[task]
        return bool(((fractions >= since) & (fractions < until)).any())


def draw_scene(task: str, answer: str, rng: np.random.Generator) -> Scene:
    """Draw a random scene in which `answer` is correct for one of SCENE_QUESTIONS."""
    return _DRAWN.get(task, _draw_crossing)(task, answer, rng)


def _draw_crossing(task: str, answer: str, rng: np.random.Generator) -> Scene:
    shape = draw_shape(rng)
    while shape.truth(task) != answer:
        shape = draw_shape(rng)
    if task == "direction":
        # Start in the centre, so that the first frame does not reveal the direction.
        start_px, across_px = SIDE_PX / 2 + rng.uniform(-_JITTER_PX, _JITTER_PX, 2)
        shape = replace(
            shape,
            radius_px=rng.uniform(9, 12),
            start_px=float(start_px),
            travel_px=rng.uniform(14, 16),
            across_px=float(across_px),
        )
    return Scene(
        background=shape.background,
        actors=(shape.actor(),),
        truths={task: shape.truth(task) for task in QUESTIONS},
        evidence={"colour": _ALWAYS, "direction": (_MOVED, math.inf), "shape": _ALWAYS},
    )


def _draw_count(task: str, answer: str, rng: np.random.Generator) -> Scene:
    """Draw one to four shapes whose number, drawn independently, changes at one instant."""
    changes = rng.uniform(0.2, 0.74)
    before = rng.permutation(4) < rng.integers(1, 5)
    after = rng.permutation(4) < COUNTS.index(answer) + 1
    shape, rgb = str(rng.choice(SHAPES)), draw_colour(str(rng.choice(list(COLOURS))), rng)
    actors = [
        _still(at, rng, shape=shape, rgb=rgb, enters=0.0 if was else changes, leaves=math.inf if stays else changes)
        for at, was, stays in zip(_QUADRANTS, before, after, strict=True)
        if was or stays
    ]
    return _scene(task, answer, actors, rng, evidence=(changes, math.inf))


def _draw_order(task: str, answer: str, rng: np.random.Generator) -> Scene:
    """Draw two shapes of different colours that appear briefly, one after the other."""
    lasts = rng.uniform(0.15, 0.2, 2).tolist()
    spare = 0.98 - 0.06 - 0.05 - sum(lasts)
    earlier, later = np.sort(rng.uniform(0, spare, 2)).tolist()
    first = 0.06 + earlier
    second = first + lasts[0] + 0.05 + later - earlier
    other = str(rng.choice([colour for colour in COLOURS if colour != answer]))
    actors = [
        _still(
            _QUADRANTS[rng.integers(4)],
            rng,
            shape=str(rng.choice(SHAPES)),
            rgb=draw_colour(colour, rng),
            enters=since,
            leaves=since + length,
        )
        for colour, since, length in zip((answer, other), (first, second), lasts, strict=True)
    ]
    return _scene(task, answer, actors, rng, evidence=(first, first + lasts[0]))


def _draw_late(task: str, answer: str, rng: np.random.Generator) -> Scene:
    """Draw a white shape that is present from the start, and a coloured one that enters from the side."""
    enters = rng.uniform(0.2, 0.8)
    arrives = enters + 0.06
    early, late = rng.permutation(4)[:2]
    white = _still(_QUADRANTS[early], rng, shape=str(rng.choice(SHAPES)), rgb=(245, 245, 245))
    x, y = _QUADRANTS[late]
    outside = -12.0 if x < SIDE_PX / 2 else SIDE_PX + 12.0
    entering = Actor(
        shape=str(rng.choice(SHAPES)),
        rgb=draw_colour(answer, rng),
        radius_px=rng.uniform(8, 12),
        start=(outside, y),
        end=(x, y),
        enters=enters,
        arrives=arrives,
    )
    return _scene(task, answer, [white, entering], rng, evidence=(arrives, math.inf))


def _still(
    centre: tuple[float, float],
    rng: np.random.Generator,
    *,
    shape: str,
    rgb: tuple[int, int, int],
    enters: float = 0.0,
    leaves: float = math.inf,
) -> Actor:
    x, y = (float(along + rng.uniform(-_JITTER_PX, _JITTER_PX)) for along in centre)
    radius_px = rng.uniform(8, 12)
    return Actor(shape=shape, rgb=rgb, radius_px=radius_px, start=(x, y), end=(x, y), enters=enters, leaves=leaves)


def _scene(
    task: str,
    answer: str,
    actors: Sequence[Actor],
    rng: np.random.Generator,
    *,
    evidence: tuple[float, float],
) -> Scene:
    return Scene(
        background=int(rng.integers(*_DARK)),
        actors=tuple(actors),
        truths={task: answer},
        evidence={task: evidence},
    )


_DRAWN: dict[str, Callable[[str, str, np.random.Generator], Scene]] = {
    "count": _draw_count,
    "order": _draw_order,
    "late": _draw_late,
}
