"""A checksum of a whole Arrow file, embedded in the file.

Arrow trusts its framing: one flipped bit in it can crash the reading process. So the bytes are verified before Arrow
parses them. The checksum is part of the schema metadata, which Arrow writes twice, in the header and in the footer;
it is computed with both blank.
"""

from __future__ import annotations

import zlib

from reelabel.errors import FrameFileError

CHECKSUM_KEY = b"seal"
BLANK_CHECKSUM = b"\x00crc32\x00--------"

# Contains zero bytes, which cannot occur in JSON, and so not in a URI within it.
_PREFIX = b"\x00crc32\x00"


def embed_checksum(data: bytes) -> bytes:
    """Fill in the two blank checksums of an Arrow file."""
    first, last = _checksum_offsets(data)
    filled, view, length = _checksum(data, first, last), memoryview(data), len(BLANK_CHECKSUM)
    return b"".join((view[:first], filled, view[first + length : last], filled, view[last + length :]))


def verify_checksum(data: bytes) -> None:
    """Verify the checksums of an Arrow file.

    Raises:
        FrameFileError: The file does not match its checksum, or has none.
    """
    first, last = _checksum_offsets(data)
    expected = _checksum(data, first, last)
    if not data.startswith(expected, first) or not data.startswith(expected, last):
        raise FrameFileError("The file does not match its checksum; it is damaged, or not a frame file.")


def _checksum_offsets(data: bytes) -> tuple[int, int]:
    """Find the checksums in the header and in the footer."""
    first, last = data.find(_PREFIX), data.rfind(_PREFIX)
    if first == last:
        raise FrameFileError("The file is truncated, or not a frame file.")
    return first, last


def _checksum(data: bytes, first: int, last: int) -> bytes:
    view, length = memoryview(data), len(BLANK_CHECKSUM)
    checksum = 0
    for piece in (view[:first], BLANK_CHECKSUM, view[first + length : last], BLANK_CHECKSUM, view[last + length :]):
        checksum = zlib.crc32(piece, checksum)
    return _PREFIX + f"{checksum:08x}".encode()
