"""Reasons why a fast path to a video's frames is unavailable."""

from __future__ import annotations


class FastPathUnavailableError(Exception):
    """A strategy cannot prove that it yields the linear decode's frames; use a slower one.

    Attributes:
        bytes_fetched: Bytes fetched by the failed attempt.
        frames_decoded: Frames decoded by the failed attempt.
    """

    bytes_fetched: int = 0
    frames_decoded: int = 0


class IndexMismatchError(FastPathUnavailableError):
    """The video contradicts its index, so counts and positions from the index are not reliable either."""


class DamagedKeyframeError(FastPathUnavailableError):
    """A keyframe is damaged, and how a decoder conceals that depends on the frames before it."""

    def __init__(self, reason: str = "a keyframe is damaged") -> None:
        """Create the error with its reason."""
        super().__init__(reason)
