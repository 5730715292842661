"""Edits to the boxes of finished MP4 files (ISO/IEC 14496-12) that no muxer writes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARENTS = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl"})
_EDIT = struct.Struct(">IiI")
_HEADER_BYTES = 8
_NORMAL_RATE = 0x10000


def repeat_edit(data: bytes) -> bytes:
    """Play the first half of the film, then its first three quarters: an edit list of two segments.

    Args:
        data: A file with its index at the end and an edit list of one segment.
    """
    at, count = _edit_list(data)
    last = at + 16 + (count - 1) * _EDIT.size
    duration, media_time, rate = _EDIT.unpack_from(data, last)
    segments = _EDIT.pack(duration // 2, media_time, rate) + _EDIT.pack(duration * 3 // 4, media_time, rate)
    grown = bytearray(data[:last] + segments + data[last + _EDIT.size :])
    struct.pack_into(">I", grown, at + 12, count + 1)
    for box in (b"moov", b"trak", b"edts", b"elst"):
        start = data.index(box) - 4
        (size_bytes,) = struct.unpack_from(">I", grown, start)
        struct.pack_into(">I", grown, start, size_bytes + _EDIT.size)
    return bytes(grown)


def trim_edit(data: bytes, *, ticks: int) -> bytes:
    """Start playback later in the media, within a GOP.

    Args:
        data: A file with an edit list.
        ticks: Offset in the media's time base.
    """
    at, count = _edit_list(data)
    last = at + 16 + (count - 1) * _EDIT.size
    duration, media_time, _ = _EDIT.unpack_from(data, last)
    changed = bytearray(data)
    _EDIT.pack_into(changed, last, duration, media_time + ticks, _NORMAL_RATE)
    return bytes(changed)


def _edit_list(data: bytes) -> tuple[int, int]:
    """Return the offset of the first edit list (version 0), and its number of segments."""
    at = data.index(b"elst") - 4
    (count,) = struct.unpack_from(">I", data, at + _HEADER_BYTES + 4)
    return at, count


def replace_boxes(boxes: bytes, changed: Mapping[bytes, bytes | None]) -> bytes:
    """Replace or remove boxes; media data must precede the index."""
    parts = []
    while boxes:
        size_bytes, name = struct.unpack_from(">I4s", boxes)
        body = boxes[8:size_bytes]
        new = replace_boxes(body, changed) if name in _PARENTS else changed.get(name, body)
        if new is not None:
            parts.append(struct.pack(">I4s", 8 + len(new), name) + new)
        boxes = boxes[size_bytes:]
    return b"".join(parts)
