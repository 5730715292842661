"""Requests of a pool to a decoding process, and the replies.

The pool pickles its requests. Replies may come from a process that a video has compromised: they are never unpickled,
and are validated by `reelabel.pool.packing` and by the dataclasses themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from reelabel.decode.canvas import Decoded
from reelabel.errors import (
    DecoderCrashedError,
    FallbackRequired,
    InvalidReplyError,
    NoFramesError,
    NoVideoStreamError,
    VideoEmptyError,
    VideoError,
    VideoTooLargeError,
    VideoUnreadableError,
    unreadable,
)
from reelabel.index import VideoIndex

if TYPE_CHECKING:
    from reelabel.options import Limits
    from reelabel.sandbox import SandboxMode
    from reelabel.sources.sparse_file import CachedRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    memory_bytes: int
    threads: int
    sandbox: SandboxMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open a video, whose descriptor is sent along unless it is read by ranges; calls follow, and finally None."""

    size_bytes: int
    suffix: str
    limits: Limits
    threads: int
    known: tuple[CachedRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """Call a method of the video's `LocalDecoder`."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The process has started; `missing` are the layers of the sandbox that are not available here."""

    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The process has received the video."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The process needs ranges of the video, by start and size."""

    spans: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.spans or any(start < 0 or size < 1 for start, size in self.spans):
            raise ValueError("no ranges")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The video cannot be used, or not in this way: the code of an error, and fields of `FallbackRequired`."""

    code: str
    message: str
    linear_only: bool = False
    index_is_wrong: bool = False
    frames_decoded: int = 0

    def __post_init__(self) -> None:
        if self.frames_decoded < 0:
            raise ValueError("frames_decoded must not be negative")


Reply: TypeAlias = Ready | Unavailable | Started | Reads | Failed | VideoIndex | Decoded

# Errors of a video that a decoding process may report. The pool itself opens and reads it, and reports the others.
_ERRORS: dict[str, type[VideoError]] = {
    each.code: each
    for each in (VideoEmptyError, VideoUnreadableError, NoVideoStreamError, NoFramesError, VideoTooLargeError)
}
_FALLBACK, OUT_OF_MEMORY, _READ_FAILED = "fallback_required", "out_of_memory", "read_failed"


class ReadFailedError(Exception):
    """The pool could not read a range, and knows why."""


def describe_failure(error: Exception, *, frames_decoded: int) -> Failed:
    """Return the message about an error, in a decoding process."""
    if isinstance(error, FallbackRequired):
        return Failed(
            code=_FALLBACK,
            message=str(error),
            linear_only=error.linear_only,
            index_is_wrong=error.index_is_wrong,
            frames_decoded=frames_decoded,
        )
    if isinstance(error, MemoryError | ReadFailedError):
        return Failed(code=OUT_OF_MEMORY if isinstance(error, MemoryError) else _READ_FAILED, message="")
    known = error if isinstance(error, VideoError) and error.code in _ERRORS else unreadable(error)
    return Failed(code=known.code, message=known.message)


def failure(failed: Failed, *, bytes_fetched: int) -> Exception:
    """Return the error that a decoding process reports; raise InvalidReplyError if no such process can raise it."""
    if failed.code == OUT_OF_MEMORY:
        return DecoderCrashedError(
            "Decoding needed more memory than extract.memory_mib; raise it if the video is valid."
        )
    if failed.code == _FALLBACK:
        needed = FallbackRequired(failed.message, index_is_wrong=failed.index_is_wrong, linear_only=failed.linear_only)
        needed.bytes_fetched, needed.frames_decoded = bytes_fetched, failed.frames_decoded
        return needed
    if failed.code not in _ERRORS:
        raise InvalidReplyError(f"the error {failed.code[:40]}")
    return _ERRORS[failed.code](failed.message)
