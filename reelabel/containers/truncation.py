"""Truncation check: whether a file is as long as its top-level structure declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.containers.mp4_boxes import walk_boxes

if TYPE_CHECKING:
    from typing import BinaryIO

    from reelabel.sources.sparse_file import SparseFile

_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
_OPEN_RIFF = 0xFFFFFFFF  # written by muxers that cannot seek back
_HEAD_BYTES = 4096


def missing_bytes(file: BinaryIO | SparseFile, size_bytes: int) -> int:
    """Return how many bytes an MP4, MOV, Matroska, WebM or AVI file lacks; 0 if it is complete or unknown.

    Sources: ISO/IEC 14496-12 section 4.2, RFC 8794 section 4.4, Microsoft's RIFF.
    """
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    if head.startswith(_EBML):
        end = _segment_end(head)
    elif head.startswith(b"RIFF"):
        size = int.from_bytes(head[4:8], "little")
        end = 0 if size == _OPEN_RIFF else size + 8
    elif head[4:8] == b"ftyp":
        end = max((box.span.start + box.span.size for box in walk_boxes(file, size_bytes)), default=0)
    else:
        return 0
    return max(0, end - size_bytes)


def _segment_end(head: bytes) -> int:
    """Return the end of Matroska's Segment element; 0 if its size is unknown, as in live streams."""
    start = head.find(_SEGMENT)
    if start < 0 or len(head) < start + 12:
        return 0
    first = head[start + 4]
    length_bytes = 9 - first.bit_length()
    if not first:
        return 0
    size = int.from_bytes(head[start + 4 : start + 4 + length_bytes]) & ((1 << 7 * length_bytes) - 1)
    is_open = size == (1 << 7 * length_bytes) - 1
    return 0 if is_open else start + 4 + length_bytes + size
