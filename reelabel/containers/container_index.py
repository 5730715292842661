"""The record of a container format, and the indexes that it reads without the media data.

Formats may start from the index that FFmpeg builds of a container's own. It lists DTS (MP4) or cluster offsets
(Matroska), and may be wrong. So each packet is demuxed, which applies composition offsets and edit lists to give its
PTS, and compared with its entry.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import av
import av.error
from av.stream import Discard

from reelabel.containers.reordering import (
    TimesOutOfOrderError,
    is_decodable_leading,
    is_shown_early,
    keeps_decode_position,
)
from reelabel.errors import FallbackRequired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO

    import numpy as np
    import numpy.typing as npt
    from av.container import InputContainer
    from av.index import IndexEntries
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

    from reelabel.limits import Limits
    from reelabel.segment import Segment
    from reelabel.sources.sparse_file import ByteRange, SparseFile
    from reelabel.sources.video_file import VideoFile

    BinaryFile: TypeAlias = BinaryIO | VideoFile | SparseFile

_EARLIEST = -(2**62)


def read_up_to(file: BinaryFile, size: int) -> bytes:
    """Read `size` bytes from the current position, fewer at the end of the file.

    Unbuffered files may return less than asked for, so reads are repeated.
    """
    data = io.BytesIO()
    while data.tell() < size and (piece := file.read(size - data.tell())):
        data.write(piece)
    return data.getvalue()


class OpenVideo(NamedTuple):
    """A video that FFmpeg has opened, and its bytes.

    Attributes:
        container: The open container.
        stream: Its video stream.
        file: The bytes, at an offset that FFmpeg does not share.
        size_bytes: Length of the file.
        limits: Limits on the video's size.
    """

    container: InputContainer
    stream: VideoStream
    file: BinaryFile
    size_bytes: int
    limits: Limits

    def read_packet(self, pos: int, size: int, pts: int) -> Packet[VideoStream]:
        """Return the packet of a keyframe that is stored in one piece, by its offset, length and PTS."""
        self.file.seek(pos)
        packet: Packet[VideoStream] = av.Packet(read_up_to(self.file, size))  # type: ignore[assignment]
        packet.pts = packet.dts = pts
        packet.stream, packet.is_keyframe = self.stream, True
        assert self.stream.time_base is not None
        packet.time_base = self.stream.time_base
        return packet


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyframeIndex:
    """The keyframes of an open video, in decode order.

    Attributes:
        pts: PTS of each keyframe, in the stream's time base; shape (K,), int64, K >= 1.
        pos: Offset of the bytes from which its packet is read; shape (K,), int64.
        size: Number of these bytes, which are prefetched from a remote file; shape (K,), int64.
        read_packet: Returns the packet of a keyframe, by its number in the index, after checking it against the index.
        first_packet: The first packet of the stream.
        first_pts: PTS of the first presented frame; None if the index does not determine it.
        frames: Number of presented frames; None if unknown.
        frames_before: Number of presented frames before each keyframe in decode order; shape (K,), int64; None if
            unknown.
        is_self_sufficient: Whether all PTS are exact, each packet is exactly `size` bytes at `pos`, and the first
            keyframe is the first frame. Later extractions then need nothing else of the file.
        is_order_proven: Whether timestamps are known to be those of the order in which a decoder outputs frames, or
            frames cannot be reordered.
        counts_packets: Whether PTS are numbers of packets, which are wrong if the decoder reorders frames.
    """

    pts: npt.NDArray[np.int64]
    pos: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    read_packet: Callable[[int], Packet[VideoStream]]
    first_packet: Packet[VideoStream]
    first_pts: int | None
    frames: int | None = None
    frames_before: npt.NDArray[np.int64] | None = None
    is_self_sufficient: bool = False
    is_order_proven: bool = False
    counts_packets: bool = False

    def __post_init__(self) -> None:
        shapes = self.pts.shape, self.pos.shape, self.size.shape
        if self.pts.ndim != 1 or not self.pts.size or len(set(shapes)) != 1:
            raise ValueError(f"pts, pos and size must be (K>=1,) alike, got {shapes}")

    @property
    def earliest_pts(self) -> int | None:
        """PTS of the first presented frame, or of the first packet, which may precede it."""
        return self.first_packet.pts if self.first_pts is None else self.first_pts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameIndex:
    """The frames of an open video, one per packet, in decode order.

    Attributes:
        pts: PTS of each frame, in the stream's time base; shape (M,), int64, M >= 1.
        is_keyframe: Whether each is a keyframe; shape (M,), bool.
        is_shown: Whether each is presented; shape (M,), bool.
        locate: Returns where the packets of frames are in the file, by the numbers of the first and the last.
        first_pts: PTS of the video's first frame.
        keyframe_pts: PTS of all presented keyframes of the video, ascending; shape (K,), int64.
        is_whole: Whether these are all frames of the video, not only those around a segment.
    """

    pts: npt.NDArray[np.int64]
    is_keyframe: npt.NDArray[np.bool_]
    is_shown: npt.NDArray[np.bool_]
    locate: Callable[[int, int], Iterable[ByteRange]]
    first_pts: int
    keyframe_pts: npt.NDArray[np.int64]
    is_whole: bool = True

    def __post_init__(self) -> None:
        shapes = {self.pts.shape, self.is_keyframe.shape, self.is_shown.shape}
        if self.pts.ndim != 1 or not self.pts.size or len(shapes) != 1:
            raise ValueError(f"pts, is_keyframe and is_shown must be (M>=1,) alike, got {shapes}")


def _prepare_nothing(file: BinaryFile, size_bytes: int) -> None:
    """Leave the file to FFmpeg."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerIndex:
    """How one container format lists its keyframes.

    The functions may raise FallbackRequired, or anything else, for a file that they cannot serve; a slower
    strategy then decodes it. All receive a file at offset 0.

    Attributes:
        name: Unique name of the format.
        probe: Returns whether a file, given its length, is of this format.
        read_index: Reads the keyframe index of an open video.
        prepare: Called before FFmpeg opens a file, to refuse it, or to prefetch what will be read of it.
        is_header_sufficient: Whether FFmpeg needs only the header to describe the streams, and no frames.
        read_frames: Lists the frames of an open video, or those that determine which ones lie in a segment, without
            reading the others; None if no index of this format lists them.
        missing_bytes: Returns how many bytes are missing at the end of a file, 0 if unknown; None if never known.
    """

    name: str
    probe: Callable[[BinaryFile, int], bool]
    read_index: Callable[[OpenVideo], KeyframeIndex]
    prepare: Callable[[BinaryFile, int], None] = _prepare_nothing
    is_header_sufficient: bool = False
    read_frames: Callable[[OpenVideo, Segment], FrameIndex] | None = None
    missing_bytes: Callable[[BinaryFile, int], int] | None = None


class IndexEntry(NamedTuple):
    """A keyframe, as listed in the index that FFmpeg builds.

    Attributes:
        number: Its position in the index.
        timestamp: DTS in MP4, PTS in Matroska, in the stream's time base.
        pos: Offset of its packet in the file; in Matroska, of the cluster that contains it.
        size: Size of its packet in bytes; 0 in Matroska.
    """

    number: int
    timestamp: int
    pos: int
    size: int


def read_first_packet(packets: Iterator[Packet[VideoStream]]) -> Packet[VideoStream]:
    """Return the first packet of a stream.

    Raises:
        FallbackRequired: There is none.
    """
    try:
        return next(packets)
    except (av.error.FFmpegError, StopIteration):
        raise FallbackRequired("the first packet cannot be read") from None


def first_output_pts(
    keyframe: Packet[VideoStream], following: Iterator[Packet[VideoStream]], codec: VideoCodecContext
) -> int | None:
    """Return the PTS of the first frame that a decoder outputs of a video that begins with a keyframe.

    That is the keyframe's, or of HEVC, an earlier picture's that is decoded after it and depends on it alone.

    Raises:
        FallbackRequired: The timestamps contradict this.
    """
    first = keyframe.pts
    if codec.codec.canonical_name != "hevc" or keeps_decode_position(keyframe, codec):
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
    """Make the demuxer skip all streams but one."""
    for other in container.streams:
        if other is not stream:
            other.discard = Discard.all


def list_keyframes(video: OpenVideo) -> list[IndexEntry]:
    """List the presented keyframes, in decode order.

    Raises:
        FallbackRequired: The index lists none, is out of order, or exceeds the file.
    """
    entries = video.stream.index_entries
    keyframes = _find_keyframes(entries)
    _require_order(entries, keyframes)
    _require_complete(video)
    return keyframes


def _find_keyframes(entries: IndexEntries) -> list[IndexEntry]:
    """Search from one keyframe to the next: an hour has 100,000 entries, each costly to access."""
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


def _require_order(entries: IndexEntries, keyframes: Sequence[IndexEntry]) -> None:
    """Check that packets are stored in decode order, each GOP before the next keyframe."""
    for entry, following in pairwise(keyframes):
        last = entries[following.number - 1]
        if not entry.number < following.number or not entry.pos <= last.pos <= last.pos + last.size <= following.pos:
            raise FallbackRequired("the index is out of order")


def _require_complete(video: OpenVideo) -> None:
    """Check that no entry lies beyond the end of the file, where a linear decode would stop."""
    for stream in video.container.streams:
        entries = stream.index_entries
        if len(entries) and entries[len(entries) - 1].pos + entries[len(entries) - 1].size > video.size_bytes:
            raise FallbackRequired("the file ends before its last frame")


def seek_packet(video: OpenVideo, timestamp: int) -> Packet[VideoStream]:
    """Seek backward from a PTS and demux the packet there.

    Raises:
        FallbackRequired: There is none.
    """
    try:
        video.container.seek(timestamp, stream=video.stream, backward=True)
        return next(video.container.demux(video.stream))
    except (av.error.FFmpegError, StopIteration):
        raise FallbackRequired("a seek failed", index_is_wrong=True) from None


def require_sought(packet: Packet[VideoStream], *, is_expected: bool) -> Packet[VideoStream]:
    """Return a packet that was sought, if it is the expected keyframe, in full.

    Raises:
        FallbackRequired: It is not.
    """
    if not is_expected or not packet.is_keyframe:
        raise FallbackRequired("a seek missed its target", index_is_wrong=True)
    if packet.is_corrupt or packet.pts is None:
        raise FallbackRequired("a packet is cut short, or has no PTS", index_is_wrong=True)
    return packet
