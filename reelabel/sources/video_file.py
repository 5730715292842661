"""Videos in open files: decoded through one descriptor, even if the path is replaced."""

from __future__ import annotations

import io
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from reelabel.errors import VideoError, VideoMissingError, VideoRefusedError, VideoUnreadableError
from reelabel.sources.object_info import redact_uri, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Opening a pipe that has no writer would block forever.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# With these suffixes, FFmpeg takes a JPEG for a sequence of files, which is not accepted; without one, it reads the
# content.
_IMAGE_SEQUENCES = frozenset({".jpg", ".jpeg"})


class Seekable:
    """Base of files for `av.open` and for Python's readers; each reads from `_position`."""

    size_bytes: int
    _position = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True


class VideoFile(Seekable):
    """A read-only binary file for `av.open` on a descriptor, whose own position it neither uses nor changes.

    It ends at `size_bytes`, even if the file grows. It never opens anything, and does not close the descriptor. FFmpeg
    distinguishes some formats by the suffix of `name`, such as `.m4v`, which may be empty.
    """

    def __init__(self, descriptor: int, size_bytes: int, suffix: str = "") -> None:
        self.descriptor = descriptor
        self.size_bytes = size_bytes
        self.suffix = suffix
        self.name = "video" if suffix.lower() in _IMAGE_SEQUENCES else f"video{suffix}"

    def reopen(self) -> VideoFile:
        return VideoFile(self.descriptor, self.size_bytes, self.suffix)

    def read(self, size: int = -1) -> bytes:
        left = max(0, self.size_bytes - self._position)
        data = os.pread(self.descriptor, left if size < 0 else min(size, left), self._position)
        self._position += len(data)
        return data


@contextmanager
def open_video_file(video: Path | str | bytes | VideoFile) -> Iterator[VideoFile]:
    """Open a file, or hold a video's bytes in memory, for a `with` block; a file that is open already is left open.

    Raises TypeError if it is neither a path nor bytes, VideoMissingError, VideoRefusedError if the path is a URI, and
    VideoUnreadableError if it is no regular file, or cannot be opened.
    """
    if isinstance(video, VideoFile):
        yield video
        return
    if isinstance(video, bytes):
        with video_in_memory(video) as file:
            yield file
        return
    path = os.fspath(video)
    try:
        descriptor = os.open(path, OPEN_FLAGS)
    except (OSError, ValueError) as error:
        raise _not_opened(path, error) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise VideoUnreadableError(f"{path} is not a regular file; check the path.")
        yield VideoFile(descriptor, found.st_size, Path(path).suffix)
    finally:
        os.close(descriptor)


def _not_opened(path: str, error: OSError | ValueError) -> VideoError:
    if scheme_of(path):
        return VideoRefusedError(
            f"{redact_uri(path)} is a URI, but only a path or a video's bytes are taken here; PrepareVideo reads URIs."
        )
    if isinstance(error, FileNotFoundError):
        return VideoMissingError(f"There is no video at {path}; check the path.")
    reason = getattr(error, "strerror", None) or error
    return VideoUnreadableError(f"The video {path} cannot be opened ({reason}); check the path.")


@contextmanager
def video_in_memory(data: bytes) -> Iterator[VideoFile]:
    """Hold the bytes of a video in an unnamed file, for the duration of a `with` block."""
    with open(os.memfd_create("video", os.MFD_CLOEXEC), "w+b", buffering=0) as file:  # noqa: PTH123 - no path
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        yield VideoFile(file.fileno(), len(data))
