"""The record of a container format, and the indexes that it reads without the media data."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import av

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import BinaryIO

    import numpy as np
    import numpy.typing as npt
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

    from reelabel.limits import Limits
    from reelabel.segment import Segment
    from reelabel.sources.sparse_file import ByteRange, SparseFile
    from reelabel.sources.video_file import VideoFile

    BinaryFile: TypeAlias = BinaryIO | VideoFile | SparseFile


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
        """Return the packet of a keyframe that is stored in one piece.

        Args:
            pos: Its offset in the file.
            size: Its length in bytes.
            pts: Its presentation time, in the stream's time base.
        """
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

    The functions may raise FastPathUnavailableError, or anything else, for a file that they cannot serve; a slower
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
