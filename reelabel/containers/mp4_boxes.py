"""Box parsing for MP4 and MOV files (ISO/IEC 14496-12, section 4.2)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from reelabel.containers.container_index import read_up_to
from reelabel.sources.sparse_file import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.containers.container_index import BinaryFile

_HEADER_BYTES, _LARGE_HEADER_BYTES = 8, 16
_MAX_BOXES = 1000


class Box(NamedTuple):
    """One box: its four-character type, and its span in the file, header included."""

    kind: bytes
    span: ByteRange


def walk_boxes(file: BinaryFile, size_bytes: int) -> Iterator[Box]:
    """Yield the top-level boxes, up to the end of the file or the first malformed one."""
    start = 0
    for _ in range(_MAX_BOXES):
        file.seek(start)
        head = read_up_to(file, _LARGE_HEADER_BYTES)
        if len(head) < _HEADER_BYTES:
            return
        size, kind = struct.unpack(">I4s", head[:_HEADER_BYTES])
        if size == 1 and len(head) == _LARGE_HEADER_BYTES:
            size = struct.unpack(">Q", head[_HEADER_BYTES:])[0]
        if size == 0:  # extends to the end of the file
            size = size_bytes - start
        if size < _HEADER_BYTES:
            return
        yield Box(kind, ByteRange(start, size))
        start += size


def read_box(file: BinaryFile, box: Box) -> memoryview:
    """Read the payload of a box."""
    file.seek(box.span.start)
    data = memoryview(read_up_to(file, box.span.size))
    return data[_header_bytes(data) :]


def inner_boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield type and payload of each child box, up to the first malformed one."""
    start = 0
    for _ in range(_MAX_BOXES):
        rest = data[start:]
        if len(rest) < _HEADER_BYTES:
            return
        size, kind = struct.unpack_from(">I4s", rest)
        if size == 1 and len(rest) >= _LARGE_HEADER_BYTES:
            size = struct.unpack_from(">Q", rest, _HEADER_BYTES)[0]
        if not _HEADER_BYTES <= size <= len(rest):
            return
        yield kind, rest[_header_bytes(rest) : size]
        start += size


def _header_bytes(data: memoryview) -> int:
    return _LARGE_HEADER_BYTES if bytes(data[:4]) == b"\0\0\0\1" else _HEADER_BYTES
