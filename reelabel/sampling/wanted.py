"""Frames that are wanted by their place in the video, instead of by a sampler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from reelabel.errors import SamplingRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.index import Int64s, VideoIndex

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

    def choose(self, within: Int64s) -> Int64s:
        """Return the wanted ones of the frames `within` the segment, in the order wanted.

        Raises:
            SamplingRefusedError: The video has no such frame.
        """
        numbers, frames = np.array(self.numbers, np.int64), len(within)
        chosen = np.where(numbers < 0, numbers + frames, numbers)
        inside = (chosen >= 0) & (chosen < frames)
        if not (inside.any() if self.clips else inside.all()):
            missing = int(numbers[~inside][0])
            raise SamplingRefusedError(
                f"There is no frame {missing}: the video has {frames:,}, numbered from 0 to {frames - 1}."
            )
        found: Int64s = within[chosen[inside]]
        return found


@dataclass(frozen=True, slots=True)
class Instants:
    """The frames that are shown at some instants.

    Attributes:
        seconds: Seconds since the first frame, at least 0, in any order and with repeats.
    """

    seconds: Sequence[float]

    def choose(self, index: VideoIndex) -> Int64s:
        """Return the places of the wanted frames in `VideoIndex.order`, in the order wanted.

        Raises:
            SamplingRefusedError: The frames have no timestamps.
        """
        if index.time_s is None or index.start_s is None:
            raise SamplingRefusedError("The video has no timestamps; ask for frames by their positions.")
        since_s = np.array(self.seconds, np.float64) + index.start_s
        latest = np.searchsorted(index.time_s, since_s + _TOLERANCE_S, side="right") - 1
        return latest.clip(0, len(index.time_s) - 1)


Wanted: TypeAlias = Positions | Instants
