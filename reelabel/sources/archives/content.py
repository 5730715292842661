"""The bytes of one member, and nothing beyond them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reelabel.errors import RangesIgnoredError
from reelabel.sources.folder import partial_file
from reelabel.sources.object_info import changed, redact_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from reelabel.sources.archives.ranged_file import ArchiveSource
    from reelabel.sources.object_info import ObjectInfo

_PIECE_BYTES = 8 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Where the bytes of a member are.

    Attributes:
        size: Its size, in bytes.
        version: What of the archive it is; with the archive's fingerprint, its own.
        read: Reads a range, which lies within it; None if it must be copied out to be read.
        copy: Yields all of it, in pieces.
        note: What its reader should know, as a clause; usually empty.
    """

    size: int
    version: str
    read: Callable[[int, int], bytes] | None
    copy: Callable[[], Iterator[bytes]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A member of an open archive; also a `reelabel.sources.sparse_file.ByteSource`.

    Attributes:
        source: The archive.
        info: The member's URI, size and fingerprint.
        content: Its bytes.
    """

    source: ArchiveSource
    info: ObjectInfo
    content: Content

    @property
    def size_bytes(self) -> int:
        """Total length in bytes."""
        return self.info.size_bytes

    @property
    def max_wait_s(self) -> float:
        """Seconds that a read may take."""
        return self.source.max_wait_s

    @property
    def objects(self) -> ArchiveMember:
        """What copies it: itself, from the archive that is open."""
        return self

    def read(self, start: int, size: int) -> bytes:
        """Read `size` bytes from `start`, fewer if it ends before.

        Raises:
            RangesIgnoredError: It is compressed; copy it.
        """
        if self.content.read is None:
            raise RangesIgnoredError(f"{redact_uri(self.info.uri)} is compressed; copy the whole member.")
        size = min(size, self.size_bytes - start)
        return self.content.read(start, size) if start >= 0 and size > 0 else b""

    def download(self, uri: str, path: Path, *, fingerprint: str | None = None, max_bytes: int | None = None) -> int:
        """Copy it to the file `path`, which is removed on failure; return its size.

        Raises:
            ObjectChangedError: The archive has changed.
            ObjectTooLargeError: It is larger than `max_bytes`.
            ArchiveUnreadableError: It is damaged.
        """
        assert uri == self.info.uri
        with partial_file(path) as file:
            for piece in self.pieces(fingerprint=fingerprint, max_bytes=max_bytes):
                file.write(piece)
            return file.tell()

    def pieces(self, *, fingerprint: str | None, max_bytes: int | None) -> Iterator[bytes]:
        """Yield all of it, after checking what `download` checks."""
        self.info.require(fingerprint=fingerprint, max_bytes=max_bytes)
        yield from self.content.copy()

    def require_unchanged(self) -> None:
        """Check that the archive has not changed since it was opened.

        Raises:
            ObjectChangedError: It has.
        """
        self.source.require_unchanged()


def pieces_of(source: ArchiveSource, start: int, size: int) -> Iterator[bytes]:
    """Yield a range of an archive in pieces.

    Raises:
        ObjectChangedError: The archive has become shorter.
    """
    for at in range(start, start + size, _PIECE_BYTES):
        wanted = min(_PIECE_BYTES, start + size - at)
        piece = source.read(at, wanted)
        if len(piece) != wanted:
            raise changed(source.info.uri)
        yield piece
