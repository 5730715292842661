"""Known scene changes, and their comparison with detected ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.description.scenes.change import SceneChange

NEAR_MS = 500
TOLERANCE_MS = 100  # two to three frames, as is usual for transitions


class Transition(NamedTuple):
    """A known change: the time of the last frame that shows only the old scene, and of the first of only the new."""

    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of one or several clips.

    Attributes:
        hits: Known changes that were found.
        wrong: Detected changes that are none, repeats included.
        missed: Known changes that were not found.
    """

    hits: int = 0
    wrong: int = 0
    missed: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(self.hits + other.hits, self.wrong + other.wrong, self.missed + other.missed)

    @property
    def precision(self) -> float:
        """Fraction of the detected changes that are changes; 1 if none was detected."""
        found = self.hits + self.wrong
        return self.hits / found if found else 1.0

    @property
    def recall(self) -> float:
        """Fraction of the known changes that were found; 1 if there is none."""
        known = self.hits + self.missed
        return self.hits / known if known else 1.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 1 if there is nothing to find, and nothing was found."""
        count = 2 * self.hits + self.wrong + self.missed
        return 2 * self.hits / count if count else 1.0


def score(found: Sequence[SceneChange], truth: Sequence[Transition], *, tolerance_ms: int = TOLERANCE_MS) -> Score:
    """Match detected changes with known ones, each at most once, in order of time.

    A detected change, which lies between its `since_ms` and `pts_ms`, is right if that span comes within
    `tolerance_ms` of a known one's.
    """
    left, hits = sorted(truth), 0
    for change in sorted(found, key=lambda each: each.pts_ms):
        match = next((each for each in left if _touches(change, each, tolerance_ms)), None)
        if match:
            left.remove(match)
            hits += 1
    return Score(hits=hits, wrong=len(found) - hits, missed=len(left))


def _touches(change: SceneChange, known: Transition, tolerance_ms: int) -> bool:
    return change.since_ms <= known.until_ms + tolerance_ms and known.since_ms - tolerance_ms <= change.pts_ms
