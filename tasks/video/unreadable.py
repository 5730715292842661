"""Whatever a video makes its decoder raise, as the video's own error."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from infra.errors import ReelabelError, VideoUnreadableError
from tasks.video.misled import MisledError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def decoding_errors() -> Iterator[None]:
    """Turn errors that nobody foresaw into the video's own.

    Raises:
        VideoUnreadableError: In their place.
    """
    try:
        yield
    except (ReelabelError, MisledError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a decoder or scaler raises lies in this video's bytes
        raise VideoUnreadableError(f"The video cannot be decoded ({type(error).__name__}: {error}).") from None
