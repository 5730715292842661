"""A part of a video, and the frames that lie in it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from fractions import Fraction

    import numpy.typing as npt

# Tolerance for rounded timestamps; far less than the distance between frames.
_TOLERANCE_S = 1e-4


class Segment(NamedTuple):
    """A segment of a video, with both ends inclusive, in seconds since its first frame.

    Attributes:
        start_s: Start; None is the video's start.
        end_s: End; None is the video's end.
    """

    start_s: float | None = None
    end_s: float | None = None

    @classmethod
    def of(cls, start_s: float | None, end_s: float | None) -> Segment:
        """Build a segment; a start at 0 equals no start."""
        return cls(start_s or None, end_s)

    def check_valid(self) -> None:
        """Raise ValueError if an end is negative or no finite number, or the end precedes the start."""
        ends = [end for end in self if end is not None]
        if not all(0 <= end < math.inf for end in ends) or ends != sorted(ends):
            raise ValueError(f"the segment from {self.start_s} to {self.end_s} s is not valid; correct its ends")

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole video."""
        return self == WHOLE

    def bounds(self, first_pts: int, time_base: Fraction | None) -> tuple[float, float]:
        """Return the PTS that no frame in the segment precedes or follows, with a margin for rounding.

        Without a time base, the segment has no bounds.
        """
        if not time_base:
            return -math.inf, math.inf
        unit_s, end_s = float(time_base), math.inf if self.end_s is None else self.end_s
        margin = _TOLERANCE_S / unit_s + 1
        return first_pts + (self.start_s or 0.0) / unit_s - margin, first_pts + end_s / unit_s + margin

    def __str__(self) -> str:
        """Format it exactly as a media fragment (W3C, Media Fragments URI 1.0): `t=1.5,9`, `t=,9`, `t=1.5`."""
        start, end = ("" if each is None else repr(float(each)).removesuffix(".0") for each in self)
        return f"t={start},{end}".removesuffix(",")


WHOLE = Segment()

# Parts of a video, disjoint and ascending: start and end of each, inclusive, in seconds since its first frame.
Windows: TypeAlias = tuple[tuple[float, float], ...]


def lie_in_windows(times_s: npt.NDArray[np.float64], windows: Windows) -> npt.NDArray[np.bool_]:
    """Return which times, in seconds since the video's first frame, lie in one of the windows; same shape."""
    starts, ends = np.array(windows, np.float64).T
    latest = np.searchsorted(starts - _TOLERANCE_S, times_s, side="right") - 1
    inside: npt.NDArray[np.bool_] = (latest >= 0) & (times_s <= ends[latest] + _TOLERANCE_S)
    return inside


class SegmentSelection(NamedTuple):
    """The numbers of the frames in a segment, at least one: if it `is_empty`, that of the last frame before it."""

    numbers: npt.NDArray[np.int64]
    is_empty: bool


def select_segment(times_s: npt.NDArray[np.float64], segment: Segment, *, first_s: float) -> SegmentSelection:
    """Find the frames in a segment by their times, which never fall; shape (N,), N >= 1.

    `first_s` is the time of the video's first frame, on the same clock.
    """
    start_s = first_s + (segment.start_s or 0.0) - _TOLERANCE_S
    end_s = np.inf if segment.end_s is None else first_s + segment.end_s + _TOLERANCE_S
    first, stop = np.searchsorted(times_s, start_s), np.searchsorted(times_s, end_s, side="right")
    if first < stop:
        return SegmentSelection(np.arange(first, stop), is_empty=False)
    return SegmentSelection(np.array([max(0, first - 1)], np.int64), is_empty=True)
