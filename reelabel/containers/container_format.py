"""The record that describes a container format, and the video indexes that formats build without the media data.

Formats may start from the index that FFmpeg builds from the container's own. It lists DTS (MP4) or cluster offsets
(Matroska), and may be wrong. So each packet is demuxed, which applies composition offsets and edit lists to give its
PTS, and compared with its entry.
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeAlias

import av
import av.error
import numpy as np
from av.stream import Discard

from reelabel.containers.demux import open_video
from reelabel.containers.packet_info import (
    TimesOutOfOrderError,
    is_closed_gop_start,
    is_decodable_leading,
    is_shown_early,
    states_reordering,
)
from reelabel.containers.stream_properties import header_info, pts_to_s
from reelabel.errors import FallbackRequired, ReelabelError
from reelabel.index import UNKNOWN_POSITION, Bools, Int64s, VideoIndex
from reelabel.output_order import output_order
from reelabel.segment import WHOLE, Segment
from reelabel.sources.sparse_file import ByteRange, SparseFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from av.container import InputContainer
    from av.index import IndexEntries
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

    from reelabel.options import Limits
    from reelabel.sources.video_file import VideoFile

    BinaryFile: TypeAlias = BinaryIO | VideoFile | SparseFile

_EARLIEST = -(2**62)
NO_TIME_BASE = "the stream has no time base"


def read_up_to(file: BinaryFile, size: int) -> bytes:
    """Read `size` bytes, fewer at the end of the file: unbuffered files may return less than asked for."""
    data = io.BytesIO()
    while data.tell() < size and (piece := file.read(size - data.tell())):
        data.write(piece)
    return data.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVideo:
    """A video that FFmpeg has opened, and whose container format may list its frames.

    `file` reads its bytes, with a position of its own that FFmpeg does not share. With `with_offsets`, frames are
    listed with the offsets of their packets.
    """

    format: ContainerFormat
    container: InputContainer
    stream: VideoStream
    source: VideoFile | SparseFile
    file: BinaryFile
    limits: Limits
    with_offsets: bool = False

    @property
    def size_bytes(self) -> int:
        return self.source.size_bytes

    def read_keyframes(self) -> tuple[VideoIndex, KeyframePackets]:
        """List the keyframes, and read their packets; raise FallbackRequired if the index is inconsistent."""
        with self.guard():
            return self.format.read_keyframes(self)

    def read_frames(self, segment: Segment = WHOLE) -> VideoIndex:
        """List the frames, or those that determine which ones lie in a segment; raise FallbackRequired otherwise."""
        if self.format.read_frames is None:
            raise FallbackRequired("the container does not list every frame")
        with self.guard():
            return self.format.read_frames(self, segment)

    def guard(self) -> AbstractContextManager[None]:
        """Convert unexpected exceptions of the format's code, so that they rule out only this index."""
        return parser_errors(self.format.name, self.file)

    @contextmanager
    def reopen(self) -> Iterator[tuple[InputContainer, VideoStream]]:
        """Open the video again, for another thread."""
        quickly = self.format.is_header_sufficient
        with open_video(self.source, self.limits, quickly=quickly, strictly=True) as (container, stream):
            demux_only(container, stream)
            yield container, stream

    def read_packet(self, pos: int, size: int, pts: int) -> Packet[VideoStream]:
        """Return the packet of a keyframe that is stored in one piece, by its offset, length and PTS."""
        self.file.seek(pos)
        packet: Packet[VideoStream] = av.Packet(read_up_to(self.file, size))  # type: ignore[assignment]
        packet.pts = packet.dts = pts
        packet.stream, packet.is_keyframe = self.stream, True
        assert self.stream.time_base is not None
        packet.time_base = self.stream.time_base
        return packet


@contextmanager
def parser_errors(name: str, file: BinaryFile) -> Iterator[None]:
    """Convert unexpected exceptions of a format's code, but not those of a store, into FallbackRequired."""
    try:
        yield
    except (ReelabelError, FallbackRequired, MemoryError):
        raise
    except Exception as error:
        if has_failed(file):
            raise
        raise FallbackRequired(f"the container {name} failed ({type(error).__name__}: {error})") from error


def has_failed(file: BinaryFile) -> bool:
    """Return whether reading a remote file failed, which is not the fault of a format's code."""
    return isinstance(file, SparseFile) and file.failure is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyframePackets:
    """The packets of the keyframes that an index lists; `first` is the first packet of the stream.

    `read` returns the packet of a keyframe, by its row, after checking it against the index. With `counts_packets`, PTS
    are numbers of packets, which are wrong if the decoder reorders frames.
    """

    first: Packet[VideoStream]
    read: Callable[[int], Packet[VideoStream]]
    counts_packets: bool = False


def index_of_keyframes(
    video: OpenVideo,
    columns: tuple[Int64s, Int64s, Int64s],
    first: Packet[VideoStream],
    *,
    first_pts: int | None,
    frames: int | None = None,
    frames_before: Int64s | None = None,
    is_order_proven: bool = False,
) -> VideoIndex:
    """Build an index of a container's keyframes, in decode order.

    `columns` are the PTS of each keyframe, the offset of the bytes from which its packet is read, and their number.
    `first` is the first packet of the stream. `first_pts` is when the first frame is shown: None if only a decoder can
    tell, as where the video begins within a GOP. `frames`, and `frames_before` each keyframe in decode order, are
    numbers of presented frames. `is_order_proven` is whether frames cannot be reordered, or timestamps are known to be
    in the order of output.

    Raises:
        FallbackRequired: `first_pts` is None, or keyframes are not shown in decode order.
    """
    if first_pts is None:
        raise FallbackRequired("frames precede the first keyframe in the index")
    pts, pos, size = columns
    codec = video.stream.codec_context
    if (np.diff(pts) <= 0).any():
        raise FallbackRequired("keyframes are not presented in index order")
    # Frames before the first IDR picture of a stream may or may not be output.
    if frames_before is None or not first.is_keyframe or not is_closed_gop_start(first, codec):
        frames_before = np.full(len(pts), UNKNOWN_POSITION)
    info, are_shown = header_info(video.container, video.stream), np.ones(len(pts), np.bool_)
    times_s = pts_to_s(pts, info.time_base)
    return VideoIndex(
        info=info,
        kind="container",
        lists="keyframes",
        pts=pts,
        is_keyframe=are_shown,
        is_shown=are_shown,
        pos=pos,
        size=size,
        order=np.arange(len(pts)),
        time_s=times_s,
        position=frames_before,
        keyframe_s=times_s,
        keyframes=len(pts),
        first_s=first_pts * float(info.time_base) if info.time_base else None,
        total_frames=frames,
        is_order_proven=is_order_proven or not codec.codec.reorder,
    )


def index_of_frames(
    video: OpenVideo,
    columns: tuple[Int64s, Bools, Bools],
    *,
    first_pts: int,
    keyframe_pts: Int64s,
    packets: Sequence[ByteRange] = (),
    is_whole: bool = True,
) -> VideoIndex:
    """Build an index of the frames of a container, one per packet, in decode order.

    `columns` are the PTS of each frame, whether it is a keyframe, and whether it is presented. `first_pts` is that of
    the video's first frame, and `keyframe_pts` are those of all its presented keyframes, ascending; `is_whole` is
    whether these are all of its frames, not only those around a segment. `packets` are empty if their places in the
    file are not needed.
    """
    pts, is_keyframe, is_shown = columns
    info, doubt = header_info(video.container, video.stream), ""
    try:
        order = output_order(pts, is_keyframe, is_shown, first_pts=None if is_whole else first_pts)
    except FallbackRequired as error:
        shown = np.flatnonzero(is_shown)
        order, doubt = shown[np.argsort(pts[shown], kind="stable")], str(error)
    if not is_whole:  # the leading frames of its first keyframe are those of an earlier GOP
        order = order[pts[order] >= pts[0]]
    is_proven = len(pts) == 1 or bool((np.diff(pts) < 0).any())
    if not is_keyframe[order].any():
        doubt = doubt or "no presented frame is a keyframe"
    if not is_whole and not is_proven and states_reordering(video.stream.codec_context):
        doubt = doubt or "the frames around the segment do not show whether timestamps are in order"
    if not info.time_base:
        raise FallbackRequired(NO_TIME_BASE)
    unit_s = np.float64(info.time_base)
    pos, size = np.array(packets, np.int64).reshape(-1, 2).T if packets else np.zeros((2, len(pts)), np.int64)
    return VideoIndex(
        info=info,
        kind="container",
        lists="frames",
        pts=pts,
        is_keyframe=is_keyframe,
        is_shown=is_shown,
        pos=pos,
        size=size,
        order=order,
        time_s=pts[order].astype(np.float64) * unit_s,
        position=np.arange(len(order)) if is_whole else np.full(len(order), UNKNOWN_POSITION),
        keyframe_s=keyframe_pts.astype(np.float64) * unit_s,
        keyframes=len(keyframe_pts),
        first_s=first_pts * unit_s,
        last_s=float(pts[order[-1]] * unit_s) if is_whole else None,
        total_frames=len(order) if is_whole else None,
        is_whole=is_whole,
        is_order_proven=is_proven,
        doubt=doubt,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFormat:
    """A container format, and the functions that read its lists of frames.

    The functions may raise FallbackRequired, or anything else, for a file that they cannot handle; a slower method then
    decodes it. All receive the file at offset 0.

    Attributes:
        probe: Returns whether a file, given its length, is of this format.
        prepare: Called before FFmpeg opens a file, to refuse it, or to prefetch what will be read of it.
        is_header_sufficient: Whether FFmpeg needs only the header to describe the streams, and no frames.
        read_frames: Lists the frames of an open video, or those that determine which ones lie in a segment, without
            reading the others. None if no index of this format lists them.
        missing_bytes: Returns how many bytes are missing at the end of a file, 0 if unknown.
    """

    name: str
    probe: Callable[[BinaryFile, int], bool]
    read_keyframes: Callable[[OpenVideo], tuple[VideoIndex, KeyframePackets]]
    missing_bytes: Callable[[BinaryFile, int], int]
    prepare: Callable[[BinaryFile, int], None] = lambda _file, _size_bytes: None
    is_header_sufficient: bool = False
    read_frames: Callable[[OpenVideo, Segment], VideoIndex] | None = None


class IndexEntry(NamedTuple):
    """A keyframe in FFmpeg's index: its number there, DTS (in MP4) or PTS (in Matroska), and where its packet is.

    In Matroska, `pos` is that of the cluster that contains it, and `size` is 0.
    """

    number: int
    timestamp: int
    pos: int
    size: int


def read_first_packet(packets: Iterator[Packet[VideoStream]]) -> Packet[VideoStream]:
    """Return the first packet of a stream; raise FallbackRequired if there is none."""
    try:
        return next(packets)
    except (av.error.FFmpegError, StopIteration):
        raise FallbackRequired("the first packet cannot be read") from None


def first_output_pts(
    keyframe: Packet[VideoStream], following: Iterator[Packet[VideoStream]], codec: VideoCodecContext
) -> int | None:
    """Return the PTS of the first frame that a decoder outputs of a video that begins with a keyframe.

    That is the keyframe's, or of HEVC and VVC, an earlier picture's that is decoded after it and depends on it alone.
    Raises FallbackRequired if the timestamps contradict this.
    """
    first = keyframe.pts
    if codec.codec.canonical_name not in {"hevc", "vvc"} or is_closed_gop_start(keyframe, codec):
        return first
    for packet in following:
        if not packet.size or not is_shown_early(packet, codec):
            break
        if packet.pts is None or keyframe.pts is None or packet.pts >= keyframe.pts:
            raise TimesOutOfOrderError
        if is_decodable_leading(packet, codec) and not packet.is_discard:
            first = min(first or 0, packet.pts)
    return first


def demux_only(container: InputContainer, stream: VideoStream) -> None:
    for other in container.streams:
        if other is not stream:
            other.discard = Discard.all


def list_keyframes(video: OpenVideo) -> list[IndexEntry]:
    """List the presented keyframes, in decode order; raise FallbackRequired if none are listed, or not in order."""
    entries = video.stream.index_entries
    keyframes = _find_keyframes(entries)
    _check_order(entries, keyframes)
    _check_complete(video)
    return keyframes


def _find_keyframes(entries: IndexEntries) -> list[IndexEntry]:
    """Search from one keyframe to the next: an hour of video has 100,000 entries, each costly to access."""
    keyframes = []
    number = entries.search_timestamp(_EARLIEST, backward=False)
    while number >= 0:
        entry = entries[number]
        if entry.is_keyframe and not entry.is_discard:
            keyframes.append(IndexEntry(number, entry.timestamp, entry.pos, entry.size))
        number = entries.search_timestamp(entry.timestamp + 1, backward=False)
    if not keyframes:
        raise FallbackRequired("the index lists no keyframe")
    return keyframes


def _check_order(entries: IndexEntries, keyframes: Sequence[IndexEntry]) -> None:
    for entry, following in pairwise(keyframes):
        last = entries[following.number - 1]
        if not entry.number < following.number or not entry.pos <= last.pos <= last.pos + last.size <= following.pos:
            raise FallbackRequired("the index is out of order")


def _check_complete(video: OpenVideo) -> None:
    """Check that no entry lies beyond the end of the file, where a linear decode would stop."""
    for stream in video.container.streams:
        entries = stream.index_entries
        if len(entries) and entries[len(entries) - 1].pos + entries[len(entries) - 1].size > video.size_bytes:
            raise FallbackRequired("the file ends before its last frame")


def seek_packet(video: OpenVideo, timestamp: int) -> Packet[VideoStream]:
    """Seek backward from a PTS and demux the packet there; raise FallbackRequired if there is none."""
    try:
        video.container.seek(timestamp, stream=video.stream, backward=True)
        return next(video.container.demux(video.stream))
    except (av.error.FFmpegError, StopIteration):
        raise FallbackRequired("a seek failed", index_is_wrong=True) from None


def check_sought(packet: Packet[VideoStream], *, is_expected: bool) -> Packet[VideoStream]:
    """Return the packet that a seek landed on; raise FallbackRequired unless it is the keyframe, and complete."""
    if not is_expected or not packet.is_keyframe:
        raise FallbackRequired("a seek missed its target", index_is_wrong=True)
    if packet.is_corrupt or packet.pts is None:
        raise FallbackRequired("a packet is cut short, or has no PTS", index_is_wrong=True)
    return packet
