"""The segment of a video that a job is about."""

from __future__ import annotations

from typing import NamedTuple


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

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole video."""
        return self == WHOLE

    def __str__(self) -> str:
        """Format it exactly as a media fragment (W3C, Media Fragments URI 1.0): `t=1.5,9`, `t=,9`, `t=1.5`."""
        start, end = ("" if each is None else repr(float(each)).removesuffix(".0") for each in self)
        return f"t={start},{end}".removesuffix(",")


WHOLE = Segment()
