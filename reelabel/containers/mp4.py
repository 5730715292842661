"""MP4 and MOV: keyframes and frames by the sample tables in the header."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers.container_format import (
    ContainerFormat,
    KeyframePackets,
    check_sought,
    demux_only,
    first_output_pts,
    index_of_frames,
    index_of_keyframes,
    list_keyframes,
    read_first_packet,
    seek_packet,
)
from reelabel.containers.demux import check_frame_count, read_packets
from reelabel.containers.mp4_sample_table import plays_in_parts, read_box, read_track, walk_boxes
from reelabel.errors import FallbackRequired
from reelabel.output_order import MAX_REORDERED, check_forward
from reelabel.sources.sparse_file import ByteRange, SparseFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from av.index import IndexEntries
    from av.packet import Packet
    from av.video.stream import VideoStream

    from reelabel.containers.container_format import BinaryFile, IndexEntry, OpenVideo
    from reelabel.index import VideoIndex
    from reelabel.segment import Segment

_FIRST_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"})
_MAX_ENTRIES_READ = 2000
_TAIL_BYTES = 2 * 1024**2
# In these codecs, every sample is exactly one frame that is shown.
_FRAME_CODECS = frozenset({"h264", "hevc", "vp9", "av1"})
# A single edit hides frames only at the ends of the track, so those are checked.
_CHECKED_ENTRIES = 64


def _probe(file: BinaryFile, _size_bytes: int) -> bool:
    return file.read(8)[4:] in _FIRST_BOXES


def _prepare(file: BinaryFile, size_bytes: int) -> None:
    for box in walk_boxes(file, size_bytes):
        if box.kind == b"moof":
            raise FallbackRequired("a fragmented MP4 has no single index")
        if not isinstance(file, SparseFile):
            continue
        left = ByteRange(box.span.end, size_bytes - box.span.end)
        if box.kind == b"mdat" and 0 < left.size <= min(_TAIL_BYTES, size_bytes // 8):
            file.prefetch([left])  # most probably the header
        if box.kind == b"moov":
            file.prefetch([box.span])


def _read_keyframes(video: OpenVideo) -> tuple[VideoIndex, KeyframePackets]:
    demux_only(video.container, video.stream)
    packets = video.container.demux(video.stream)
    first = read_first_packet(packets)
    entries = video.stream.index_entries
    keyframes = list_keyframes(video)
    moov = _read_moov(video)
    if moov is None:
        raise FallbackRequired("the header is not found")
    if plays_in_parts(moov, track_id=video.stream.id):
        raise FallbackRequired("the edit list plays the video in several parts")
    track = read_track(moov, track_id=video.stream.id, samples=len(entries))
    is_counted = len(entries) == video.stream.frames and not (track and track.has_empty)
    hidden = _count_hidden(entries, keyframes) if is_counted else None
    if first.pts is None or first.pos != entries[0].pos:
        raise FallbackRequired("the index does not start at the first packet")
    shift = first.pts - entries[0].timestamp
    numbers, dts, pos, size = np.array(keyframes, np.int64).T
    times = None if track is None else track.times - track.times[0] + first.pts
    if times is not None:
        check_forward(times, np.isin(np.arange(len(times)), numbers))
    # The index holds DTS. If the sample tables are unusable, the first packet's difference is assumed for all.
    pts = dts + shift if times is None else times[numbers]
    frames = None if hidden is None else len(entries) - sum(hidden)
    if keyframes[0].number == 0:
        first_pts = first_output_pts(first, packets, video.stream.codec_context)
    else:
        first_pts = _first_presented_pts(entries, keyframes, times, packets)
    index = index_of_keyframes(
        video,
        (pts, pos, size),
        first,
        first_pts=first_pts,
        frames=frames,
        frames_before=None if hidden is None else numbers - hidden[0],
        is_order_proven=times is not None and bool((np.diff(times) < 0).any()),
    )
    read = _PacketReader(video, keyframes, shift).read
    return index, KeyframePackets(first=first, read=read)


@dataclass(slots=True)
class _PacketReader:
    """Demuxes keyframes by seeking; `shift`, from DTS to PTS, is known only for the first packet."""

    video: OpenVideo
    keyframes: Sequence[IndexEntry]
    shift: int

    def read(self, number: int) -> Packet[VideoStream]:
        entry = self.keyframes[number]
        packet = seek_packet(self.video, self._target(number))
        if packet.pos != entry.pos and packet.dts is not None:
            # FFmpeg shifts timestamps differently if an edit list trims; one correction holds for all packets.
            self.shift += entry.timestamp - packet.dts
            packet = seek_packet(self.video, self._target(number))
        return check_sought(packet, is_expected=packet.pos == entry.pos)

    def _target(self, number: int) -> int:
        """Return a PTS halfway to the next keyframe, from which a backward seek lands on this one."""
        dts = [entry.timestamp for entry in self.keyframes[number : number + 2]]
        return dts[0] + self.shift + (dts[-1] - dts[0]) // 2


def _count_hidden(entries: IndexEntries, keyframes: Sequence[IndexEntry]) -> tuple[int, int] | None:
    first, last = keyframes[0].number, keyframes[-1].number
    second = keyframes[1].number if len(keyframes) > 1 else first + 1
    if max(second, len(entries) - last) > _MAX_ENTRIES_READ or _count_discarded(entries, first, second):
        return None
    if not entries[0].is_keyframe:
        return None  # frames before the first keyframe may or may not be decoded
    return _count_discarded(entries, 0, first), _count_discarded(entries, last, len(entries))


def _count_discarded(entries: IndexEntries, start: int, stop: int) -> int:
    return sum(entry.is_discard for entry in entries[start:stop])


def _first_presented_pts(
    entries: IndexEntries,
    keyframes: Sequence[IndexEntry],
    times: npt.NDArray[np.int64] | None,
    following: Iterator[Packet[VideoStream]],
) -> int | None:
    """Return the PTS of the first presented frame, if an edit list starts between two keyframes; None if unknown.

    Without `times`, as where FFmpeg leaves out the samples before the keyframe that is needed, packets are read. If the
    file begins within a GOP, the frames before its first keyframe may or may not be decoded.
    """
    if not entries[0].is_keyframe:
        return None
    second = keyframes[1].number if len(keyframes) > 1 else len(entries)
    if times is None:
        presented = (packet for packet in islice(following, second - 1) if packet.size and not packet.is_discard)
        shown = [packet.pts for packet in islice(presented, MAX_REORDERED + 1)]
        return min((pts for pts in shown if pts is not None), default=None)
    return int(times[[number for number in range(second) if not entries[number].is_discard]].min())


def _read_moov(video: OpenVideo) -> memoryview | None:
    file, offset = video.file, video.file.tell()
    moov = next((read_box(file, box) for box in walk_boxes(file, video.size_bytes) if box.kind == b"moov"), None)
    file.seek(offset)
    return moov


def _read_frames(video: OpenVideo, _segment: Segment) -> VideoIndex:
    demux_only(video.container, video.stream)
    entries = video.stream.index_entries
    check_frame_count(len(entries), video.limits)
    moov = _read_moov(video)
    track = None if moov is None else read_track(moov, track_id=video.stream.id, samples=len(entries))
    is_listed = track is not None and track.is_whole and not track.has_empty
    if track is None or not is_listed or video.stream.codec_context.codec.canonical_name not in _FRAME_CODECS:
        raise FallbackRequired("the header does not give every frame's PTS")
    is_shown = _find_shown(entries, video.size_bytes)
    if isinstance(video.file, SparseFile):
        video.file.prefetch([ByteRange(entries[0].pos, entries[0].size)])
    first = read_first_packet(read_packets(video.container, video.stream))
    if first.pts is None or first.pos != entries[0].pos:
        raise FallbackRequired("the index does not start at the first packet")
    pts = track.times - track.times[0] + first.pts
    if not track.keyframes.size or track.keyframes[0] != 0:
        raise FallbackRequired("the header does not determine presentation order")
    is_keyframe = np.zeros(len(pts), np.bool_)
    is_keyframe[track.keyframes] = True
    return index_of_frames(
        video,
        (pts, is_keyframe, is_shown),
        first_pts=int(pts[is_shown].min()),
        keyframe_pts=np.sort(pts[is_keyframe & is_shown]),
        packets=[ByteRange(entry.pos, entry.size) for entry in entries[:]] if video.with_offsets else (),
    )


def _find_shown(entries: IndexEntries, size_bytes: int) -> npt.NDArray[np.bool_]:
    """Return which samples the edit list leaves, according to FFmpeg; shape (samples,)."""
    ends = (*entries[:_CHECKED_ENTRIES], *entries[-_CHECKED_ENTRIES:])
    if any(entry.pos + entry.size > size_bytes for entry in ends):
        raise FallbackRequired("the file ends before its last frame")
    if not any(entry.is_discard for entry in ends):
        return np.ones(len(entries), np.bool_)
    is_shown = np.array([not entry.is_discard for entry in entries[:]])
    if not is_shown.any():
        raise FallbackRequired("an edit list hides all frames")
    return is_shown


def _missing_bytes(file: BinaryFile, size_bytes: int) -> int:
    if file.read(8)[4:] != b"ftyp":
        return 0
    return max(0, sum(box.span.size for box in walk_boxes(file, size_bytes)) - size_bytes)


MP4 = ContainerFormat(
    name="mp4",
    probe=_probe,
    read_keyframes=_read_keyframes,
    prepare=_prepare,
    is_header_sufficient=True,
    read_frames=_read_frames,
    missing_bytes=_missing_bytes,
)
