"""An MP4's boxes, and the presentation times of its samples (ISO/IEC 14496-12, sections 4.2, 8.3.2 and 8.6)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reelabel.containers.container_format import read_up_to
from reelabel.sources.sparse_file import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from reelabel.containers.container_format import BinaryFile

_HEADER_BYTES, _LARGE_HEADER_BYTES = 8, 16
_MAX_BOXES = 1000
_TRACK_ID_OFFSET = {0: 12, 1: 20}  # by version of the tkhd box
_STTS = np.dtype([("count", ">u4"), ("value", ">u4")])
_CTTS = np.dtype([("count", ">u4"), ("value", ">i4")])
_STSS = np.dtype(">u4")
_SBGP = np.dtype([("count", ">u4"), ("group", ">u4")])
_SBGP_COUNT_AT = {0: 8, 1: 12}  # by version of the sbgp box
_RANDOM_ACCESS, _SYNC = b"rap ", b"sync"  # sample groups
_STSZ = np.dtype(">u4")
_ELST = {
    0: np.dtype([("duration", ">u4"), ("start", ">i4"), ("rate", ">u4")]),
    1: np.dtype([("duration", ">u8"), ("start", ">i8"), ("rate", ">u4")]),
}
_EMPTY_EDIT, _NORMAL_RATE = -1, 0x10000
_HEADER = struct.Struct(">II")
_STSZ_HEADER = struct.Struct(">III")


class Box(NamedTuple):
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mp4Track:
    """A track's samples, in decode order.

    Attributes:
        times: Presentation time of each sample in the track's time scale, from an arbitrary origin; shape (samples,).
        keyframes: Indices of the sync samples, also of those that begin an open GOP, ascending; shape (K,).
        is_whole: Whether the edit list plays the track once, in one piece and at normal rate; it may still trim the
            ends.
        has_empty: Whether samples without a byte, which no demuxer passes on, are or may be among them.
    """

    times: npt.NDArray[np.int64]
    keyframes: npt.NDArray[np.int64]
    is_whole: bool
    has_empty: bool


def read_track(moov: memoryview, *, track_id: int, samples: int) -> Mp4Track | None:
    """Read the tables of a track with that many samples from the payload of the movie box.

    None if its tables are missing or inconsistent, or if it has several sample descriptions.
    """
    track = _find_track(moov, track_id)
    table = None if track is None else _descend(track, b"mdia", b"minf", b"stbl")
    return None if track is None or table is None else _read(track, table, samples)


def plays_in_parts(moov: memoryview, *, track_id: int) -> bool:
    """Return whether a track's edit list plays it in several parts, between which its frames may be left out."""
    track = _find_track(moov, track_id)
    elst = None if track is None else _descend(track, b"edts", b"elst")
    media = None if elst is None else _media_edits(elst)
    return media is not None and len(media) > 1


def _find_track(moov: memoryview, track_id: int) -> memoryview | None:
    tracks = (box for kind, box in inner_boxes(moov) if kind == b"trak")
    return next((track for track in tracks if _track_id(track) == track_id), None)


def _read(track: memoryview, table: memoryview, samples: int) -> Mp4Track | None:
    boxes = dict(inner_boxes(table))
    durations = _expand_runs(boxes.get(b"stts"), _STTS, samples)
    offsets = _expand_runs(boxes[b"ctts"], _CTTS, samples) if b"ctts" in boxes else np.zeros(samples, np.int64)
    keyframes = _keyframes(boxes.get(b"stss"), samples)
    partial = _partial_keyframes(table, samples)
    if (
        partial is None
        or durations is None
        or offsets is None
        or keyframes is None
        or _entry_count(boxes.get(b"stsd")) != 1
    ):
        return None
    times: npt.NDArray[np.int64] = np.cumsum(durations) - durations + offsets
    return Mp4Track(
        times=times,
        keyframes=np.union1d(keyframes, partial),
        is_whole=_plays_once(_descend(track, b"edts", b"elst")),
        has_empty=_has_empty(boxes.get(b"stsz"), samples),
    )


def _expand_runs(box: memoryview | None, layout: np.dtype[np.void], samples: int) -> npt.NDArray[np.int64] | None:
    runs = _entries(box, layout)
    if runs is None or runs["count"].sum(dtype=np.int64) != samples:
        return None
    return np.repeat(runs["value"].astype(np.int64), runs["count"])


def _keyframes(box: memoryview | None, samples: int) -> npt.NDArray[np.int64] | None:
    if box is None:
        return np.arange(samples)  # without stss, every sample is a sync sample
    numbers = _entries(box, _STSS)
    if numbers is None or not numbers.size:
        return None
    keyframes = numbers.astype(np.int64) - 1
    is_valid = keyframes[0] >= 0 and keyframes[-1] < samples and (np.diff(keyframes) > 0).all()
    return keyframes if is_valid else None


def _partial_keyframes(table: memoryview, samples: int) -> npt.NDArray[np.int64] | None:
    """Read which samples begin an open GOP: QuickTime's `stps`, and the sample group `rap `; None if unusable."""
    found = [np.zeros(0, np.int64)]
    for kind, box in inner_boxes(table):
        if kind == b"stps":
            numbers = _entries(box, _STSS)
            found += [] if numbers is None else [numbers.astype(np.int64) - 1]
        group = bytes(box[4:8]) if kind == b"sbgp" else b""
        if group == _SYNC:
            return None  # sync samples are known by their pictures
        if group == _RANDOM_ACCESS:
            at = _SBGP_COUNT_AT.get(box[0], len(box))
            runs = _entries(box[at - 4 :], _SBGP)
            if runs is None or runs["count"].sum(dtype=np.int64) > samples:
                return None
            found.append(np.flatnonzero(np.repeat(runs["group"] > 0, runs["count"])))
    partial: npt.NDArray[np.int64] = np.concatenate(found)
    return partial if ((partial >= 0) & (partial < samples)).all() else None


def _has_empty(box: memoryview | None, samples: int) -> bool:
    """Return whether a sample size is 0, or may be; a size in the head of the box is that of every sample."""
    if box is None or len(box) < _STSZ_HEADER.size:
        return True
    _, size, count = _STSZ_HEADER.unpack_from(box)
    if size:
        return False
    is_long_enough = count == samples and len(box) >= _STSZ_HEADER.size + count * _STSZ.itemsize
    return not is_long_enough or not np.frombuffer(box, _STSZ, count, _STSZ_HEADER.size).all()


def _plays_once(elst: memoryview | None) -> bool:
    if elst is None:
        return True
    media = _media_edits(elst)
    return media is not None and len(media) == 1 and int(media["rate"][0]) == _NORMAL_RATE


def _media_edits(elst: memoryview) -> npt.NDArray[np.void] | None:
    """Return the edits without empty ones, which are pauses; None if malformed, or if nothing follows a pause."""
    edits = _entries(elst, _ELST.get(elst[0], _ELST[0])) if len(elst) else None
    if edits is None or not len(edits) or edits["start"][-1] == _EMPTY_EDIT:
        return None
    media: npt.NDArray[np.void] = edits[edits["start"] != _EMPTY_EDIT]
    return media


def _entries(box: memoryview | None, layout: np.dtype[np.void] | np.dtype[np.uint32]) -> npt.NDArray[np.void] | None:
    count = _entry_count(box)
    if box is None or len(box) < _HEADER.size + count * layout.itemsize:
        return None
    return np.frombuffer(box, layout, count, _HEADER.size)


def _track_id(track: memoryview) -> int | None:
    head = dict(inner_boxes(track)).get(b"tkhd")
    offset = _TRACK_ID_OFFSET.get(head[0]) if head else None
    return None if head is None or offset is None else int.from_bytes(head[offset : offset + 4])


def _descend(box: memoryview, *kinds: bytes) -> memoryview | None:
    for kind in kinds:
        inner = dict(inner_boxes(box)).get(kind)
        if inner is None:
            return None
        box = inner
    return box


def _entry_count(box: memoryview | None) -> int:
    return _HEADER.unpack_from(box)[1] if box is not None and len(box) >= _HEADER.size else 0
