"""A video as a seekable file on an open descriptor."""

from __future__ import annotations

import io
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from reelabel.errors import VideoMissingError, VideoUnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Opening a pipe that has no writer would block forever.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class VideoFile:
    """A read-only binary file for `av.open` on a descriptor, whose own position it neither uses nor changes.

    It ends at `size_bytes`, even if the file grows. It never opens anything, and does not close the descriptor.

    Attributes:
        descriptor: The open file.
        size_bytes: Its length.
        suffix: The suffix of its name, by which FFmpeg tells some formats apart, such as `.m4v`; may be empty.
        name: What FFmpeg takes as its name.
    """

    def __init__(self, descriptor: int, size_bytes: int, suffix: str = "") -> None:
        """Start at the beginning of an open file."""
        self.descriptor = descriptor
        self.size_bytes = size_bytes
        self.suffix = suffix
        self.name = f"video{suffix}"
        self._position = 0

    def reopen(self) -> VideoFile:
        """Return the same file with a position of its own."""
        return VideoFile(self.descriptor, self.size_bytes, self.suffix)

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; return no bytes only at the end of the file."""
        left = max(0, self.size_bytes - self._position)
        data = os.pread(self.descriptor, left if size < 0 else min(size, left), self._position)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, as `io.IOBase.seek` does."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the current position."""
        return self._position

    def seekable(self) -> bool:
        """Return True."""
        return True


@contextmanager
def open_video_file(path: Path | str) -> Iterator[VideoFile]:
    """Open a file for the duration of a `with` block.

    Raises:
        VideoMissingError: The file does not exist.
        VideoUnreadableError: It is not a regular file, or cannot be opened.
    """
    try:
        descriptor = os.open(path, OPEN_FLAGS)
    except FileNotFoundError:
        raise VideoMissingError(f"There is no video at {path}; check the path.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise VideoUnreadableError(f"The video {path} cannot be opened ({reason}); check the path.") from None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise VideoUnreadableError(f"{path} is not a regular file; check the path.")
        yield VideoFile(descriptor, facts.st_size, Path(path).suffix)
    finally:
        os.close(descriptor)


@contextmanager
def video_in_memory(data: bytes) -> Iterator[VideoFile]:
    """Hold the bytes of a video in an unnamed file, for the duration of a `with` block."""
    with open(os.memfd_create("video", os.MFD_CLOEXEC), "w+b", buffering=0) as file:  # noqa: PTH123 - no path
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        yield VideoFile(file.fileno(), len(data))
