"""From an MP4's decoding order to its presentation times."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from tasks.video.boxes import inner_boxes

if TYPE_CHECKING:
    import numpy.typing as npt

_TRACK_ID_AT = {0: 12, 1: 20}  # by the box's version
_RUN = np.dtype([("count", ">u4"), ("offset", ">i4")])
_HEAD = struct.Struct(">II")


def composition_offsets(
    moov: memoryview,
    *,
    track_id: int,
    samples: int,
    numbers: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64] | None:
    """Read how much later than decoded some samples are shown (ISO/IEC 14496-12, section 8.6.1.3).

    Args:
        moov: The movie box's inside.
        track_id: The track.
        samples: How many it has.
        numbers: The samples asked for; shape (K,).

    Returns:
        Offsets in the track's time scale, shape (K,); None where the tables do not tell, or where the
        track changes its decoder's configuration on the way.
    """
    for kind, track in inner_boxes(moov):
        if kind == b"trak" and _track_id(track) == track_id:
            table = _descend(track, b"mdia", b"minf", b"stbl")
            return None if table is None else _offsets(table, samples, numbers)
    return None


def _offsets(table: memoryview, samples: int, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    boxes = dict(inner_boxes(table))
    if _count(boxes.get(b"stsd")) != 1:
        return None
    if b"ctts" not in boxes:
        return np.zeros(len(numbers), np.int64)
    count = _count(boxes[b"ctts"])
    if len(boxes[b"ctts"]) < _HEAD.size + count * _RUN.itemsize:
        return None
    runs = np.frombuffer(boxes[b"ctts"], _RUN, count, _HEAD.size)
    ends = np.cumsum(runs["count"], dtype=np.int64)
    if not count or ends[-1] != samples:
        return None
    offsets: npt.NDArray[np.int64] = runs["offset"].astype(np.int64)[np.searchsorted(ends, numbers, side="right")]
    return offsets


def _track_id(track: memoryview) -> int | None:
    head = dict(inner_boxes(track)).get(b"tkhd")
    at = _TRACK_ID_AT.get(head[0]) if head else None
    return None if head is None or at is None else int.from_bytes(head[at : at + 4])


def _descend(box: memoryview, *kinds: bytes) -> memoryview | None:
    for kind in kinds:
        inner = dict(inner_boxes(box)).get(kind)
        if inner is None:
            return None
        box = inner
    return box


def _count(box: memoryview | None) -> int:
    """Read the number of entries, behind version and flags."""
    return _HEAD.unpack_from(box)[1] if box is not None and len(box) >= _HEAD.size else 0
