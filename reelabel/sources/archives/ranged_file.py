"""An archive as a seekable file that reads ahead as far as it is read in sequence."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Protocol

from reelabel.errors import ArchiveUnreadableError
from reelabel.sources.object_info import changed, redact_uri
from reelabel.sources.sparse_file import ByteSource
from reelabel.sources.video_file import Seekable

if TYPE_CHECKING:
    from reelabel.sources.object_info import ObjectInfo

_SMALLEST_BLOCK_BYTES = 4 * 1024
_LARGEST_BLOCK_BYTES = 4 * 1024**2
# Python's readers trust the sizes that an archive states for its headers.
_MAX_READ_BYTES = 256 * 1024**2


class ArchiveSource(ByteSource, Protocol):
    """One version of an archive, local or remote. A read returns fewer bytes if it ends before."""

    @property
    def info(self) -> ObjectInfo:
        """Its URI, size and fingerprint."""

    def require_unchanged(self) -> None:
        """Raise ObjectChangedError if it has changed since it was opened."""


class RangedFile(Seekable, io.RawIOBase):
    """A read-only binary file over an archive. It holds one block, which grows while it is read in sequence."""

    def __init__(self, source: ArchiveSource, *, block_bytes: int = _SMALLEST_BLOCK_BYTES) -> None:
        """Start at the beginning; `block_bytes` is the size of blocks after a jump."""
        self.size_bytes = source.size_bytes
        self._source = source
        self._first_block_bytes = self._block_bytes = block_bytes
        self._block_start = 0
        self._block = b""

    def read_at(self, start: int, size: int) -> bytes:
        """Read from a position, fewer bytes only at the end of the archive."""
        self.seek(start)
        return self.read(size)

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, fewer only at the end of the archive.

        Raises:
            ArchiveUnreadableError: More is asked for than headers can have.
            ObjectChangedError: The archive ends before its size.
        """
        left = max(0, self.size_bytes - self._position)
        size = left if size < 0 else min(size, left)
        if size > _MAX_READ_BYTES:
            raise ArchiveUnreadableError(
                f"{redact_uri(self._source.info.uri)} states {size:,} bytes of headers; it is damaged, pack it again."
            )
        offset = self._position - self._block_start
        if not (offset >= 0 and offset + size <= len(self._block)):
            self._fetch(size)
            offset = self._position - self._block_start
        self._position += size
        return self._block[offset : offset + size]

    def readable(self) -> bool:
        """Return True."""
        return True

    def _fetch(self, size: int) -> None:
        """Make the block begin at the position, and hold at least `size` bytes."""
        offset = self._position - self._block_start
        is_sequential = bool(self._block) and 0 <= offset <= len(self._block)
        grown = min(2 * self._block_bytes, max(_LARGEST_BLOCK_BYTES, self._first_block_bytes))
        self._block_bytes = grown if is_sequential else self._first_block_bytes
        known = self._block[offset:] if is_sequential else b""
        start = self._position + len(known)
        wanted = min(max(size - len(known), self._block_bytes), self.size_bytes - start)
        data = self._source.read(start, wanted) if wanted > 0 else b""
        if len(data) < wanted:
            raise changed(self._source.info.uri)
        self._block_start, self._block = self._position, known + data
