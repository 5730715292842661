"""The balanced mix of clips: every question and answer equally often for each number of keyframes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice, product

from tools.tiny_model.scenes import SCENE_QUESTIONS, STILL_TASKS

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
