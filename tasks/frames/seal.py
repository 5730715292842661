"""A checksum over a whole Arrow file, kept inside it.

Arrow trusts its own framing: one flipped bit there can crash the reader's process. So the bytes are
checked before Arrow sees them. The checksum stands in the schema's metadata, which Arrow writes
twice, at the head and in the footer; it is computed with both places blank.
"""

from __future__ import annotations

import zlib

from infra.errors import FrameFileError

SEAL_KEY = b"seal"
BLANK_SEAL = b"\x00crc32\x00--------"

# With zero bytes, which JSON text, and so a URI in it, cannot hold.
_PREFIX = b"\x00crc32\x00"


def seal(data: bytes) -> bytes:
    """Fill in the two blank seals of an Arrow file."""
    first, last = _places(data)
    filled, view, length = _seal_of(data, first, last), memoryview(data), len(BLANK_SEAL)
    return b"".join((view[:first], filled, view[first + length : last], filled, view[last + length :]))


def check_seal(data: bytes) -> None:
    """Compare an Arrow file with its seals.

    Raises:
        FrameFileError: The bytes are not what was sealed.
    """
    first, last = _places(data)
    expected = _seal_of(data, first, last)
    if not data.startswith(expected, first) or not data.startswith(expected, last):
        raise FrameFileError("The frame file does not match its checksum: it is damaged, or not a frame file.")


def _places(data: bytes) -> tuple[int, int]:
    """Find the seals: before all columns, and after them."""
    first, last = data.find(_PREFIX), data.rfind(_PREFIX)
    if first == last:
        raise FrameFileError("The frame file is cut short, or is not a frame file.")
    return first, last


def _seal_of(data: bytes, first: int, last: int) -> bytes:
    view, length = memoryview(data), len(BLANK_SEAL)
    checksum = 0
    for piece in (view[:first], BLANK_SEAL, view[first + length : last], BLANK_SEAL, view[last + length :]):
        checksum = zlib.crc32(piece, checksum)
    return _PREFIX + f"{checksum:08x}".encode()
