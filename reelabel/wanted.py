"""Frames that are wanted by their place in the video, instead of by a sampler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from reelabel.errors import SamplingRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

# Tolerance for rounded timestamps, as of a segment's ends.
_TOLERANCE_S = 1e-4


@dataclass(frozen=True, slots=True)
class Positions:
    """Frames by their positions in the linear decode, or among its frames in a segment.

    Attributes:
        numbers: Positions, in any order and with repeats; negative ones count from the end.
        clips: Leave out what lies after the last frame, instead of refusing it.
    """

    numbers: Sequence[int]
    clips: bool = False

    def choose(
        self, within: npt.NDArray[np.int64], times_s: npt.NDArray[np.float64] | None, *, first_s: float | None
    ) -> npt.NDArray[np.int64]:
        """Return the wanted ones of the frames `within` the segment, in the order wanted.

        Raises:
            SamplingRefusedError: The video has no such frame.
        """
        del times_s, first_s
        numbers, frames = np.array(self.numbers, np.int64), len(within)
        chosen = np.where(numbers < 0, numbers + frames, numbers)
        inside = (chosen >= 0) & (chosen < frames)
        if not (inside.any() if self.clips else inside.all()):
            missing = int(numbers[~inside][0])
            raise SamplingRefusedError(
                f"There is no frame {missing}: the video has {frames:,}, numbered from 0 to {frames - 1}."
            )
        found: npt.NDArray[np.int64] = within[chosen[inside]]
        return found


@dataclass(frozen=True, slots=True)
class Instants:
    """The frames that are shown at some instants.

    Attributes:
        seconds: Seconds since the first frame, at least 0, in any order and with repeats.
    """

    seconds: Sequence[float]

    def choose(
        self, within: npt.NDArray[np.int64], times_s: npt.NDArray[np.float64] | None, *, first_s: float | None
    ) -> npt.NDArray[np.int64]:
        """Return the positions of the wanted frames, in the order wanted, whether or not they lie in the segment.

        Args:
            within: The frames within the segment.
            times_s: When all frames are shown, in seconds, never falling; None if unknown.
            first_s: When the video's first frame is shown; None if that is the first of them.

        Raises:
            SamplingRefusedError: The frames have no timestamps.
        """
        del within
        if times_s is None:
            raise SamplingRefusedError("The video has no timestamps; ask for frames by their positions.")
        since_s = np.array(self.seconds, np.float64) + (times_s[0] if first_s is None else first_s)
        latest = np.searchsorted(times_s, since_s + _TOLERANCE_S, side="right") - 1
        return latest.clip(0, len(times_s) - 1)


Wanted: TypeAlias = Positions | Instants
