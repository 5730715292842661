"""The fixed mix of the benchmark: every question and answer as often on clips of each number of keyframes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice, product

from tasks.demo.scenes import SCENE_QUESTIONS, STILL_TASKS

KEYFRAMES = (1, 2, 4, 8, 16)
SCENE, MOTION = "scene", "motion"
# Two questions about scenes for four about motion or order: each of the two is asked twice as often.
_ASKED = ("colour", "direction", "shape", "count", "colour", "order", "shape", "late")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one clip is about.

    Attributes:
        subtask: One of SCENE_QUESTIONS.
        answer: The right choice.
        keyframes: How many the clip has.
    """

    subtask: str
    answer: str
    keyframes: int

    @property
    def task(self) -> str:
        """Whether any frame answers the question."""
        return SCENE if self.subtask in STILL_TASKS else MOTION


def block() -> list[Cell]:
    """List each combination once, scenes and motion in turn."""
    return [
        Cell(subtask=subtask, answer=SCENE_QUESTIONS[subtask][1][answer], keyframes=keyframes)
        for answer, subtask, keyframes in product(range(4), _ASKED, KEYFRAMES)
    ]


def mix(clips: int) -> list[Cell]:
    """Repeat the block; balanced in full at multiples of its length, 160."""
    return list(islice(cycle(block()), clips))
