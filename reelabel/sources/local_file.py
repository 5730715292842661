"""An open file as a video: looked up, checked and decoded by one descriptor, whatever becomes of its path."""

from __future__ import annotations

import math
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from reelabel.errors import ObjectMissingError, VideoRefusedError
from reelabel.sources.object_info import ObjectInfo, changed
from reelabel.sources.video_file import OPEN_FLAGS, VideoFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FOLDER_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LocalFile:
    """An open regular file; also a `reelabel.sources.sparse_file.ByteSource`.

    Attributes:
        info: Its URI, and its size and fingerprint when it was opened.
        descriptor: The open file.
    """

    info: ObjectInfo
    descriptor: int
    max_wait_s: ClassVar[float] = math.inf  # the file system has no timeout

    @property
    def size_bytes(self) -> int:
        """Total length in bytes."""
        return self.info.size_bytes

    def read(self, start: int, size: int) -> bytes:
        """Read `size` bytes from `start`, fewer if the file has become shorter."""
        return os.pread(self.descriptor, size, start)

    def as_video(self) -> VideoFile:
        """Return it as a file for `av.open`."""
        return VideoFile(self.descriptor, self.size_bytes, Path(self.info.uri).suffix)

    def require_unchanged(self) -> None:
        """Check that the file has not been written to since it was opened.

        Raises:
            ObjectChangedError: It has.
        """
        if describe(self.info.uri, os.fstat(self.descriptor)) != self.info:
            raise changed(self.info.uri)


@contextmanager
def open_local(uri: str, path: Path, roots: Sequence[Path] = ()) -> Iterator[LocalFile]:
    """Open a file for the duration of a `with` block.

    Args:
        uri: The URI by which it is known.
        path: The file.
        roots: Folders that it must lie in, with symlinks resolved; empty allows every folder.

    Raises:
        VideoRefusedError: It lies in none of the folders.
        ObjectMissingError: It is not a regular file.
        OSError: It cannot be opened.
    """
    descriptor = _open_below(roots, path) if roots else os.open(path, OPEN_FLAGS)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise ObjectMissingError(f"{uri} is not a regular file; check the path.")
        yield LocalFile(describe(uri, facts), descriptor)
    finally:
        os.close(descriptor)


def describe(uri: str, facts: os.stat_result) -> ObjectInfo:
    """Return the size and fingerprint of a file."""
    return ObjectInfo(
        uri=uri,
        size_bytes=facts.st_size,
        fingerprint=f"file:{facts.st_size}:{facts.st_mtime_ns}",
        modified=datetime.fromtimestamp(facts.st_mtime, UTC),
    )


def _open_below(roots: Sequence[Path], path: Path) -> int:
    """Open a file below one of `roots`.

    Links are resolved first, and the resolved path is then opened folder by folder, from the root on, following no
    link: a folder or link that is replaced meanwhile makes this fail, but never leads outside.
    """
    resolved = Path(os.path.realpath(path))
    for root in map(os.path.realpath, roots):
        if resolved.is_relative_to(root):
            return _walk(root, resolved.relative_to(root).parts)
    raise VideoRefusedError(f"{path} is outside extract.allow_roots; move the video there, or add its folder.")


def _walk(root: str, parts: Sequence[str]) -> int:
    at = os.open(root, _FOLDER_FLAGS)
    try:
        for folder in parts[:-1]:
            below = os.open(folder, _FOLDER_FLAGS, dir_fd=at)
            os.close(at)
            at = below
        return os.open(parts[-1] if parts else ".", OPEN_FLAGS | os.O_NOFOLLOW, dir_fd=at)
    finally:
        os.close(at)
