"""Presentation times of an MP4's samples, computed from its header (ISO/IEC 14496-12, sections 8.6 and 8.3.2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import av.error
import numpy as np

from reelabel.containers.container_index import is_mp4
from reelabel.containers.demux import check_frame_count, open_video
from reelabel.containers.mp4_boxes import inner_boxes, read_box, walk_boxes
from reelabel.errors import VideoUnreadableError
from reelabel.fast_path import FastPathUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt
    from av.container import InputContainer
    from av.index import IndexEntries
    from av.video.stream import VideoStream

    from reelabel.limits import Limits


_TRACK_ID_OFFSET = {0: 12, 1: 20}  # by version of the tkhd box
_STTS = np.dtype([("count", ">u4"), ("value", ">u4")])
_CTTS = np.dtype([("count", ">u4"), ("value", ">i4")])
_STSS = np.dtype(">u4")
_ELST = {
    0: np.dtype([("duration", ">u4"), ("start", ">i4"), ("rate", ">u4")]),
    1: np.dtype([("duration", ">u8"), ("start", ">i8"), ("rate", ">u4")]),
}
_EMPTY_EDIT, _NORMAL_RATE = -1, 0x10000
_HEADER = struct.Struct(">II")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mp4Track:
    """A track's samples, in decode order.

    Attributes:
        times: Presentation time of each sample in the track's time scale, from an arbitrary origin; shape (samples,),
            int64.
        keyframes: Indices of the sync samples, ascending; shape (K,), int64.
        is_whole: Whether the edit list plays the track once, in one piece and at normal rate; it may still trim the
            ends.
    """

    times: npt.NDArray[np.int64]
    keyframes: npt.NDArray[np.int64]
    is_whole: bool


def read_track(moov: memoryview, *, track_id: int, samples: int) -> Mp4Track | None:
    """Read a track's sample tables.

    Args:
        moov: Payload of the movie box.
        track_id: The track's ID.
        samples: Number of samples in the track.

    Returns:
        The track; None if its tables are missing or inconsistent, or if it has several sample descriptions.
    """
    for kind, track in inner_boxes(moov):
        if kind == b"trak" and _track_id(track) == track_id:
            table = _descend(track, b"mdia", b"minf", b"stbl")
            return None if table is None else _read(track, dict(inner_boxes(table)), samples)
    return None


def _read(track: memoryview, boxes: dict[bytes, memoryview], samples: int) -> Mp4Track | None:
    durations = _expand_runs(boxes.get(b"stts"), _STTS, samples)
    offsets = _expand_runs(boxes[b"ctts"], _CTTS, samples) if b"ctts" in boxes else np.zeros(samples, np.int64)
    keyframes = _keyframes(boxes.get(b"stss"), samples)
    if durations is None or offsets is None or keyframes is None or _entry_count(boxes.get(b"stsd")) != 1:
        return None
    times: npt.NDArray[np.int64] = np.cumsum(durations) - durations + offsets
    return Mp4Track(times=times, keyframes=keyframes, is_whole=_plays_once(_descend(track, b"edts", b"elst")))


def _expand_runs(box: memoryview | None, layout: np.dtype[np.void], samples: int) -> npt.NDArray[np.int64] | None:
    """Expand (count, value) runs to one value per sample."""
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


def _plays_once(elst: memoryview | None) -> bool:
    if elst is None:
        return True
    edits = _entries(elst, _ELST.get(elst[0], _ELST[0])) if len(elst) else None
    if edits is None:
        return False
    media = edits[edits["start"] != _EMPTY_EDIT]  # without empty edits, which are pauses
    return len(media) == 1 and edits["start"][-1] != _EMPTY_EDIT and int(media["rate"][0]) == _NORMAL_RATE


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
    """Read the entry count, which follows version and flags."""
    return _HEADER.unpack_from(box)[1] if box is not None and len(box) >= _HEADER.size else 0


# In these codecs, every sample is exactly one presented frame.
_CODECS = frozenset({"h264", "hevc"})
# A single edit hides frames only at the ends of the track, so those are checked.
_CHECKED_ENTRIES = 64


def read_frame_times(path: Path, limits: Limits) -> tuple[list[int], list[int]]:
    """Read from the header what `reelabel.strategies.seek.presentation_order` computes from all packets.

    Returns:
        The PTS of all frames in the stream's time base, ascending, and the positions of keyframes among them.

    Raises:
        MisledError: The header is insufficient or inconsistent.
        VideoTooLargeError: There are more frames than `limits.max_frames`.
    """
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        if not is_mp4(file, size_bytes):
            raise FastPathUnavailableError("the container has no frame times in its header")
        moov = next((read_box(file, box) for box in walk_boxes(file, size_bytes) if box.kind == b"moov"), None)
    try:
        with open_video(path, limits, quickly=True) as (container, stream):
            return _read_times(container, stream, moov, size_bytes, limits)
    except (VideoUnreadableError, av.error.FFmpegError):
        raise FastPathUnavailableError("the container cannot be opened from its header alone") from None


def _read_times(
    container: InputContainer,
    stream: VideoStream,
    moov: memoryview | None,
    size_bytes: int,
    limits: Limits,
) -> tuple[list[int], list[int]]:
    entries = stream.index_entries
    check_frame_count(len(entries), limits)
    track = read_track(moov, track_id=stream.id, samples=len(entries)) if moov is not None else None
    if stream.codec_context.name not in _CODECS or track is None or not track.is_whole:
        raise FastPathUnavailableError("the header does not give every frame's PTS")
    _require_none_hidden(entries, size_bytes)
    pts = track.times - track.times[0] + _first_pts(container, stream)
    times = np.sort(pts)
    if not track.keyframes.size or track.keyframes[0] != 0 or times[0] < pts[0] or (np.diff(times) == 0).any():
        raise FastPathUnavailableError("the header does not determine presentation order")
    return times.tolist(), np.sort(np.searchsorted(times, pts[track.keyframes])).tolist()


def _require_none_hidden(entries: IndexEntries, size_bytes: int) -> None:
    ends = (*entries[:_CHECKED_ENTRIES], *entries[-_CHECKED_ENTRIES:])
    if any(entry.is_discard for entry in ends):
        raise FastPathUnavailableError("an edit list hides frames")
    if any(entry.pos + entry.size > size_bytes for entry in ends):
        raise FastPathUnavailableError("the file ends before its last frame")


def _first_pts(container: InputContainer, stream: VideoStream) -> int:
    first = next(container.demux(stream), None)
    if first is None or first.pts is None or first.pos != stream.index_entries[0].pos:
        raise FastPathUnavailableError("the index does not start at the first packet")
    return first.pts
