"""The checksum and the seal within a frame file, which stays a plain Arrow file.

Both are in its schema metadata, under `seal`, and so twice in the file: in its header and in its footer. The checksum
lets everyone detect damage before Arrow reads the file; the seal is made and verified by the cache, which has the key.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from reelabel.errors import FrameFileError, SealError
from reelabel.seal import NO_SEAL

if TYPE_CHECKING:
    from reelabel.seal import Seal

METADATA_KEY = b"seal"
# Zero bytes cannot occur in JSON, and so not in a URI within it. Not `seal`, the name of the metadata itself.
_MARK = b"\x00sealed\x00"
_CHECKSUM_END = len(_MARK) + 8
BLANK = _MARK + b"-" * 8 + NO_SEAL


def embed_checksum(data: bytes) -> bytes:
    """Fill in the checksum of an Arrow file with two `BLANK` slots."""
    parts = _cut(data)
    return parts.filled(_MARK + parts.compute_checksum() + NO_SEAL)


def embed_seal(data: bytes, seal: Seal, name: str) -> bytes:
    """Fill in the seal of a frame file, which covers the checksum already there."""
    parts = _cut(data)
    return parts.filled(_MARK + parts.checksum + seal.make(name, parts.checksum, *parts.blanked))


def verify_checksum(data: bytes) -> None:
    """Verify the checksum of a frame file.

    Raises:
        FrameFileError: The file does not match its checksum, or has none.
    """
    parts = _cut(data)
    if parts.checksum != parts.compute_checksum():
        raise FrameFileError("The file does not match its checksum; it is damaged, or not a frame file.")


def verify_seal(data: bytes, seal: Seal, name: str) -> None:
    """Verify the seal of a frame file.

    Raises:
        FrameFileError: The file is damaged or altered, was sealed with another key, or belongs elsewhere.
    """
    parts = _cut(data)
    try:
        seal.verify(bytes(parts.slot[_CHECKSUM_END:]), name, parts.checksum, *parts.blanked)
    except SealError as error:
        raise FrameFileError(error.message) from None


class _Parts(NamedTuple):
    """An Arrow file cut at its two slots, which have the same content."""

    before: memoryview
    slot: memoryview
    between: memoryview
    after: memoryview

    @property
    def checksum(self) -> bytes:
        return bytes(self.slot[len(_MARK) : _CHECKSUM_END])

    @property
    def blanked(self) -> tuple[bytes | memoryview, ...]:
        """The file with blank slots, in pieces."""
        return self.before, BLANK, self.between, BLANK, self.after

    def filled(self, slot: bytes) -> bytes:
        return b"".join((self.before, slot, self.between, slot, self.after))

    def compute_checksum(self) -> bytes:
        checksum = 0
        for piece in self.blanked:
            checksum = zlib.crc32(piece, checksum)
        return f"{checksum:08x}".encode()


def _cut(data: bytes) -> _Parts:
    first, last, length = data.find(_MARK), data.rfind(_MARK), len(BLANK)
    view = memoryview(data)
    slots = view[first : first + length], view[last : last + length]
    if not 0 <= first <= last - length <= len(data) - 2 * length or slots[0] != slots[1]:
        raise FrameFileError("The file is truncated or damaged, or not a frame file.")
    return _Parts(view[:first], slots[0], view[first + length : last], view[last + length :])
