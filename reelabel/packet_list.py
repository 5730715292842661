"""When each frame of a video is shown, how large its packet is, and whether it is a keyframe; nothing is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import av.error
import numpy as np

from reelabel.containers.demux import check_frame_count, open_video, read_packets
from reelabel.containers.packet_info import packet_info
from reelabel.containers.registry import probe_file
from reelabel.containers.stream_properties import StreamProperties, pts_to_ms
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.index_facts import WHOLE_BYTES
from reelabel.output_order import require_forward
from reelabel.segment import WHOLE
from reelabel.sources.sparse_file import SparseFile

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.stream import VideoStream

    from reelabel.limits import Limits
    from reelabel.sources.video_file import VideoFile

PacketsListed: TypeAlias = Literal["index", "packets"]
_Int64s: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PacketList:
    """The frames of a video in presentation order, as its container announces them; the file may contradict it.

    Attributes:
        times_ms: Presentation times in milliseconds, ascending; shape (N,), int64, N >= 1.
        sizes_bytes: Sizes of the frames' packets; shape (N,), int64.
        is_keyframe: Whether each is a keyframe; shape (N,), bool.
        fps: Average frame rate; 0.0 if unknown.
        duration_s: Duration; 0.0 if unknown.
        listed: Whether the container's index lists them, or all packets were demuxed.
    """

    times_ms: _Int64s
    sizes_bytes: _Int64s
    is_keyframe: npt.NDArray[np.bool_]
    fps: float
    duration_s: float
    listed: PacketsListed

    def __post_init__(self) -> None:
        shapes = {self.times_ms.shape, self.sizes_bytes.shape, self.is_keyframe.shape}
        if self.times_ms.ndim != 1 or not self.times_ms.size or len(shapes) != 1:
            raise ValueError(f"times_ms, sizes_bytes and is_keyframe must be (N>=1,) alike, got {shapes}")


def read_packet_list(file: VideoFile | SparseFile, limits: Limits) -> PacketList:
    """List the frames of a video by its index; without one, by demuxing a local file of up to `WHOLE_BYTES`.

    Raises:
        FallbackRequired: Its frames are not listed, or only a pass over the whole file would list them.
        VideoError: As `extract_keyframes` does, as far as the header tells.
        Exception: Whatever the source of a remote video raises.
    """
    if not isinstance(file, SparseFile):
        return _read(file, limits)
    with file.looked_into():
        return _by_index(file, limits)


def _read(file: VideoFile, limits: Limits) -> PacketList:
    try:
        return _by_index(file, limits)
    except (FallbackRequired, VideoUnreadableError):
        if file.size_bytes > WHOLE_BYTES:
            raise FallbackRequired("no index lists the frames, and the file is too large to pass over") from None
        return _by_packets(file, limits)


def _by_index(file: VideoFile | SparseFile, limits: Limits) -> PacketList:
    probed = probe_file(file)
    if probed.container.read_frames is None:
        raise FallbackRequired("the container does not list every frame")
    with probed.open(limits) as video, probed.guard():
        index = probed.container.read_frames(video, WHOLE)
        sizes = [packet.size for packet in index.locate(0, len(index.pts) - 1)]
        if len(sizes) != len(index.pts):
            raise FallbackRequired("the index does not list the sizes of packets")
        shown = index.is_shown
        return _sorted(
            (video.container, video.stream),
            (index.pts[shown], np.array(sizes, np.int64)[shown], index.is_keyframe[shown]),
            listed="index",
        )


def _by_packets(file: VideoFile, limits: Limits) -> PacketList:
    rows: list[tuple[int, int, bool]] = []
    with open_video(file, limits) as (container, stream):
        try:
            for packet in read_packets(container, stream):
                info = packet_info(packet, stream)
                if info.is_shown:
                    rows.append((info.pts, packet.size, info.is_keyframe))
                check_frame_count(len(rows), limits)
        except av.error.FFmpegError:
            raise FallbackRequired("the demuxer failed") from None
        if not rows:
            raise FallbackRequired("the file has no packet of video")
        pts, sizes, keyframes = np.array(rows, np.int64).T
        return _sorted((container, stream), (pts, sizes, keyframes.astype(np.bool_)), listed="packets")


def _sorted(
    opened: tuple[InputContainer, VideoStream],
    columns: tuple[_Int64s, _Int64s, npt.NDArray[np.bool_]],
    *,
    listed: PacketsListed,
) -> PacketList:
    stream = StreamProperties.of(*opened)
    require_forward(columns[0], columns[2])
    order = np.argsort(columns[0], kind="stable")
    pts, sizes, is_keyframe = columns[0][order], columns[1][order], columns[2][order]
    times_ms = pts_to_ms(pts, stream.time_base)
    if times_ms is None or not len(pts):
        raise FallbackRequired("the frames have no presentation times")
    return PacketList(
        times_ms=times_ms,
        sizes_bytes=sizes.astype(np.int64),
        is_keyframe=is_keyframe,
        fps=stream.fps,
        duration_s=max(0.0, stream.duration_s),
        listed=listed,
    )
