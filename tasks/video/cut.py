"""Select the frames of a video that lie in a segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.domain.segment import Segment

# Tolerance for rounded timestamps; far less than the distance between frames.
_TOLERANCE_S = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class SegmentSelection:
    """The frames selected for a segment.

    Attributes:
        numbers: Indices of the frames; shape (M,), M >= 1, int64.
        is_empty: Whether no frame lies in the segment, so that the last one before it is used instead.
    """

    numbers: npt.NDArray[np.int64]
    is_empty: bool


def select_segment(times_s: npt.NDArray[np.float64], segment: Segment, *, first_s: float) -> SegmentSelection:
    """Find the frames in a segment.

    Args:
        times_s: Presentation times in seconds, in any order; shape (N,), N >= 1.
        segment: The segment, relative to the video's first frame.
        first_s: Presentation time of the first frame, on the clock of `times_s`.
    """
    start_s = first_s + (segment.start_s or 0.0) - _TOLERANCE_S
    end_s = np.inf if segment.end_s is None else first_s + segment.end_s + _TOLERANCE_S
    inside = np.flatnonzero((times_s >= start_s) & (times_s <= end_s))
    if inside.size:
        return SegmentSelection(inside, is_empty=False)
    earlier = np.where(times_s < start_s, times_s, -np.inf)
    last = earlier.argmax() if np.isfinite(earlier).any() else times_s.argmin()
    return SegmentSelection(np.array([last], np.int64), is_empty=True)
