"""The outermost boxes of an MP4 or MOV file (ISO/IEC 14496-12, section 4.2)."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, NamedTuple

from tasks.video.ranges import Span

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from tasks.video.ranges import SparseFile

_SHORT, _LONG = 8, 16
_MOST_BOXES = 1000


class Box(NamedTuple):
    """One box: its four-letter kind, and where it stands, header included."""

    kind: bytes
    span: Span


def walk_boxes(file: BinaryIO | SparseFile, size_bytes: int) -> Iterator[Box]:
    """List the outermost boxes, until the file's end or the first that cannot be one."""
    start = 0
    for _ in range(_MOST_BOXES):
        file.seek(start)
        head = read_up_to(file, _LONG)
        if len(head) < _SHORT:
            return
        size, kind = struct.unpack(">I4s", head[:_SHORT])
        if size == 1 and len(head) == _LONG:
            size = struct.unpack(">Q", head[_SHORT:])[0]
        if size == 0:  # up to the end
            size = size_bytes - start
        if size < _SHORT:
            return
        yield Box(kind, Span(start, size))
        start += size


def read_up_to(file: BinaryIO | SparseFile, size: int) -> bytes:
    """Read `size` bytes from where a file stands, fewer at its end: raw files may give them piece by piece."""
    data = io.BytesIO()
    while data.tell() < size and (piece := file.read(size - data.tell())):
        data.write(piece)
    return data.getvalue()


def read_box(file: BinaryIO | SparseFile, box: Box) -> memoryview:
    """Read what stands inside a box."""
    file.seek(box.span.start)
    data = memoryview(read_up_to(file, box.span.size))
    return data[_head_bytes(data) :]


def inner_boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """List the boxes inside a box, until the first that cannot be one: their kinds and their insides."""
    start = 0
    for _ in range(_MOST_BOXES):
        rest = data[start:]
        if len(rest) < _SHORT:
            return
        size, kind = struct.unpack_from(">I4s", rest)
        if size == 1 and len(rest) >= _LONG:
            size = struct.unpack_from(">Q", rest, _SHORT)[0]
        if not _SHORT <= size <= len(rest):
            return
        yield kind, rest[_head_bytes(rest) : size]
        start += size


def _head_bytes(data: memoryview) -> int:
    return _LONG if bytes(data[:4]) == b"\0\0\0\1" else _SHORT
