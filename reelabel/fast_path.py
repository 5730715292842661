"""Errors of decoding: a fast path that is unavailable, and FFmpeg's errors as ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from reelabel.errors import ReelabelError, VideoUnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@contextmanager
def as_video_errors() -> Iterator[None]:
    """Convert unexpected exceptions into VideoUnreadableError.

    Raises:
        VideoUnreadableError: The block raised anything but a ReelabelError or a FastPathUnavailableError.
    """
    try:
        yield
    except (ReelabelError, FastPathUnavailableError):
        raise
    except Exception as error:  # noqa: BLE001 - a decoder or scaler may raise anything for bad input
        raise unreadable(error) from None


def unreadable(error: Exception) -> VideoUnreadableError:
    """Return the error for an exception that nobody expected."""
    return VideoUnreadableError(f"The video cannot be decoded ({type(error).__name__}: {error}).")
