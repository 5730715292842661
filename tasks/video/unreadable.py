"""Convert unexpected decoding errors into VideoUnreadableError."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from infra.errors import ReelabelError, VideoUnreadableError
from tasks.video.misled import FastPathUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def as_video_errors() -> Iterator[None]:
    """Convert unexpected exceptions into VideoUnreadableError.

    Raises:
        VideoUnreadableError: The block raised anything but a ReelabelError or a MisledError.
    """
    try:
        yield
    except (ReelabelError, FastPathUnavailableError):
        raise
    except Exception as error:  # noqa: BLE001 - a decoder or scaler may raise anything for bad input
        raise VideoUnreadableError(f"The video cannot be decoded ({type(error).__name__}: {error}).") from None
