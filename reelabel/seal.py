"""Seals: keyed MACs of files on the store, so that a file that was altered, moved or replaced is not used.

A seal is an HMAC-SHA256 of a file's name and bytes. Without a key it is only a checksum: it detects damage and files
under a wrong name, but anyone who can write to the store can forge it.

The seal of most files precedes their bytes. A frame file stays a plain Arrow file: its checksum and its seal are in its
schema metadata, under `seal`, and so occur twice: in its header and in its footer. The checksum lets everyone detect
damage before Arrow reads the file; the seal is made and verified by the cache, which has the key.
"""

from __future__ import annotations

import hmac
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from reelabel.errors import ForeignSealError, FrameFileError, SealError

# Length of a seal as text: the id of the key, and the MAC.
SEAL_LENGTH = 8 + 64
NO_SEAL = b"-" * SEAL_LENGTH
_MAGIC = b"sealed1\n"
_HEADER_LENGTH = len(_MAGIC) + SEAL_LENGTH
# The metadata of a frame file, and the slot within it.
METADATA_KEY = b"seal"
# Zero bytes cannot occur in JSON, and so not in a URI within it. Not `seal`, the name of the metadata itself.
_MARK = b"\x00sealed\x00"
_CHECKSUM_END = len(_MARK) + 8
BLANK = _MARK + b"-" * 8 + NO_SEAL


@dataclass(frozen=True, slots=True)
class Seal:
    """Makes and verifies seals with a key; an empty one stands for none."""

    key: bytes = field(default=b"", repr=False)

    def make(self, name: str, *pieces: bytes | memoryview) -> bytes:
        """Return the seal of a file of some pieces: `SEAL_LENGTH` ASCII characters.

        The name states the kind of file, and where it belongs; it is unique among all sealed files.
        """
        prefix = name.encode()
        mac = hmac.new(self.key, len(prefix).to_bytes(8, "big") + prefix, "sha256")
        for piece in pieces:
            mac.update(piece)
        return f"{self.key_id}{mac.hexdigest()}".encode()

    def verify(self, seal: bytes, name: str, *pieces: bytes | memoryview) -> None:
        """Verify the seal of a file.

        Raises ForeignSealError if it was made with another key, or without one, and SealError if the file was altered,
        or belongs elsewhere.
        """
        if not seal.startswith(self.key_id.encode()):
            raise ForeignSealError("It was signed with another store.mac_key, or without one.")
        if not hmac.compare_digest(seal, self.make(name, *pieces)):
            raise SealError("Signature mismatch: the file was modified, corrupted or moved.")

    def wrap(self, name: str, data: bytes) -> bytes:
        """Return a file's bytes behind their seal."""
        return b"".join((_MAGIC, self.make(name, data), data))

    def unwrap(self, name: str, sealed: bytes) -> memoryview:
        """Verify the result of `wrap`, and return the file's bytes; raises as `verify` does."""
        view = memoryview(sealed)
        if not sealed.startswith(_MAGIC) or len(sealed) < _HEADER_LENGTH:
            raise SealError("It is truncated, or has no signature.")
        self.verify(bytes(view[len(_MAGIC) : _HEADER_LENGTH]), name, view[_HEADER_LENGTH:])
        return view[_HEADER_LENGTH:]

    @property
    def key_id(self) -> str:
        """Eight hex digits that differ between keys, and may be shown."""
        return hmac.digest(self.key, b"key id", "sha256").hex()[:8]


NO_KEY = Seal()


def embed_checksum(data: bytes) -> bytes:
    """Fill in the checksum of an Arrow file with two `BLANK` slots."""
    parts = _cut(data)
    return parts.filled(_MARK + parts.compute_checksum() + NO_SEAL)


def embed_seal(data: bytes, seal: Seal, name: str) -> bytes:
    """Fill in the seal of a frame file, which covers the checksum already there."""
    parts = _cut(data)
    return parts.filled(_MARK + parts.checksum + seal.make(name, parts.checksum, *parts.blanked))


def verify_checksum(data: bytes) -> None:
    """Raise FrameFileError if a frame file does not match its checksum, or has none."""
    parts = _cut(data)
    if parts.checksum != parts.compute_checksum():
        raise FrameFileError("The file does not match its checksum; it is damaged, or not a frame file.")


def verify_seal(data: bytes, seal: Seal, name: str) -> None:
    """Raise FrameFileError if a frame file is damaged or altered, was signed with another key, or belongs elsewhere."""
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
