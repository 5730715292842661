"""Seals: keyed MACs of files on the store, so that a file that was altered, moved or replaced is not used.

A seal is an HMAC-SHA256 of a file's name and bytes. Without a key it is only a checksum: it detects damage and files
under a wrong name, but whoever can write to the store can make it, too.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from reelabel.errors import ForeignSealError, SealError

# Length of a seal as text: the id of the key, and the MAC.
SEAL_LENGTH = 8 + 64
NO_SEAL = b"-" * SEAL_LENGTH
_MAGIC = b"sealed1\n"
_HEADER_LENGTH = len(_MAGIC) + SEAL_LENGTH


@dataclass(frozen=True, slots=True)
class Seal:
    """Makes and verifies seals.

    Attributes:
        key: The secret; empty if there is none.
    """

    key: bytes = field(default=b"", repr=False)

    def make(self, name: str, *pieces: bytes | memoryview) -> bytes:
        """Return the seal of a file: `SEAL_LENGTH` ASCII characters.

        Args:
            name: What the file is, and where it belongs; unique among all sealed files.
            pieces: Its bytes, in pieces.
        """
        prefix = name.encode()
        mac = hmac.new(self.key, len(prefix).to_bytes(8, "big") + prefix, "sha256")
        for piece in pieces:
            mac.update(piece)
        return f"{self.key_id}{mac.hexdigest()}".encode()

    def verify(self, seal: bytes, name: str, *pieces: bytes | memoryview) -> None:
        """Verify the seal of a file.

        Raises:
            ForeignSealError: It was made with another key, or without one.
            SealError: The file was altered, or belongs elsewhere.
        """
        if not seal.startswith(self.key_id.encode()):
            raise ForeignSealError("It was sealed with another store.mac_key, or without one.")
        if not hmac.compare_digest(seal, self.make(name, *pieces)):
            raise SealError("It does not match its seal: it was altered or damaged, or belongs under another name.")

    def wrap(self, name: str, data: bytes) -> bytes:
        """Return a file's bytes behind their seal."""
        return b"".join((_MAGIC, self.make(name, data), data))

    def unwrap(self, name: str, sealed: bytes) -> memoryview:
        """Verify the result of `wrap`, and return the file's bytes.

        Raises:
            ForeignSealError: It was made with another key, or without one.
            SealError: The file was altered, is not sealed, or belongs elsewhere.
        """
        view = memoryview(sealed)
        if not sealed.startswith(_MAGIC) or len(sealed) < _HEADER_LENGTH:
            raise SealError("It is truncated, or has no seal.")
        self.verify(bytes(view[len(_MAGIC) : _HEADER_LENGTH]), name, view[_HEADER_LENGTH:])
        return view[_HEADER_LENGTH:]

    @property
    def key_id(self) -> str:
        """Eight hex digits that differ between keys, and may be shown."""
        return hmac.digest(self.key, b"key id", "sha256").hex()[:8]


NO_KEY = Seal()
