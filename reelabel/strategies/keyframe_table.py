"""Offsets and presentation times of a video's keyframes, so that its header need not be read again."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import av
import numpy as np

from reelabel.containers.cropping import Crop
from reelabel.containers.reordering import TimesOutOfOrderError, keeps_decode_position
from reelabel.containers.stream_properties import StreamProperties, check_frame_size
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames
from reelabel.decode.packet_decoder import CodecParameters, affordable_threads, decode_packets_independently
from reelabel.errors import FallbackRequired
from reelabel.sampled_frames import UNKNOWN_POSITION, Orientation
from reelabel.sources.sparse_file import ByteRange, CachedRange

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sources.sparse_file import SparseFile


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyframeTable:
    """The keyframes of an MP4 whose first frame is one, in presentation order.

    Attributes:
        codec: Parameters of their decoder.
        stream: Properties of their stream.
        orientation: Rotation and mirroring for display.
        pts: PTS in the stream's time base; shape (K,), int64, ascending.
        pos: Offset of each packet in the file; shape (K,), int64.
        size: Size of each packet in bytes; shape (K,), int64.
        frames_before: Presented frames before each keyframe in decode order, `UNKNOWN_POSITION` if unknown; shape (K,),
            int64.
        frames: Number of presented frames in the stream; None if unknown.
        missing_bytes: Bytes missing at the end of the file.
        brings_parameters: Whether the first packet brings parameter sets, so that those of `codec` may not be for all.
        is_order_proven: Whether timestamps are known to be those of the order in which a decoder outputs frames.
    """

    codec: CodecParameters
    stream: StreamProperties
    orientation: Orientation
    pts: npt.NDArray[np.int64]
    pos: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    frames_before: npt.NDArray[np.int64]
    frames: int | None
    missing_bytes: int
    brings_parameters: bool = False
    is_order_proven: bool = True


def describe_table(table: KeyframeTable) -> dict[str, Any]:
    """Return the attributes of a table, without its columns, as JSON values."""
    return {
        "codec": asdict(table.codec) | {"extradata": base64.b64encode(table.codec.extradata).decode()},
        "stream": asdict(table.stream) | {"time_base": str(table.stream.time_base)},
        "orientation": list(table.orientation),
        "frames": table.frames,
        "missing_bytes": table.missing_bytes,
        "brings_parameters": table.brings_parameters,
        "is_order_proven": table.is_order_proven,
    }


def table_arguments(described: dict[str, Any]) -> dict[str, Any]:
    """Convert the result of `describe_table` to arguments of `KeyframeTable`."""
    codec, stream = described["codec"], described["stream"]
    return described | {
        "codec": CodecParameters(**codec | {"extradata": base64.b64decode(codec["extradata"])}),
        "stream": StreamProperties(
            **stream | {"time_base": Fraction(stream["time_base"]), "crop": Crop(*stream["crop"])}
        ),
        "orientation": Orientation(*described["orientation"]),
    }


# What locates keyframes: a table of them, or the ranges of the file that FFmpeg must read.
SavedIndex: TypeAlias = KeyframeTable | tuple[CachedRange, ...]


def extract_by_table(request: ExtractionRequest, file: SparseFile, table: KeyframeTable) -> SampledFrames:
    """Extract the picked keyframes, reading only their packets.

    Raises:
        FallbackRequired: A packet does not decode to a keyframe.
        VideoError: As `extract_keyframes` does.
    """
    if request.every or request.native:
        raise FallbackRequired("a keyframe table serves only picks at the model's size")
    check_frame_size(table.codec.width, table.codec.height, request.limits)
    times_s = table.pts.astype(np.float64) * float(table.stream.time_base)
    chosen = request.choose(len(table.pts), times_s)
    numbers = list(dict.fromkeys(chosen))
    spans = [ByteRange(int(table.pos[number]), int(table.size[number])) for number in numbers]
    file.prefetch(spans)
    packets = [_packet(table, number, file.read_span(span)) for number, span in zip(numbers, spans, strict=True)]
    codecs = [table.codec.open(request.limits) for _ in range(affordable_threads(request.threads, table.codec))]
    if not table.is_order_proven and not all(keeps_decode_position(packet, codecs[0]) for packet in packets):
        raise TimesOutOfOrderError
    brings = table.brings_parameters
    frames = request.stats.each(decode_packets_independently(packets, codecs, others_bring_parameters=brings))
    infos = (_frame_info(table, number, packet, codecs[0]) for number, packet in zip(numbers, packets, strict=True))
    return assemble_frames(
        request,
        lambda: table.stream,
        chosen=chosen,
        frames=zip(infos, frames, strict=True),
        summary=IndexSummary(
            keyframes=len(table.pts), frames=table.frames, keyframe_s=times_s, first_s=float(times_s[0])
        ),
        method="index",
        orientation=table.orientation,
    )


def _frame_info(table: KeyframeTable, number: int, packet: Packet[VideoStream], codec: VideoCodecContext) -> FrameInfo:
    is_known = keeps_decode_position(packet, codec)
    position = int(table.frames_before[number]) if is_known else UNKNOWN_POSITION
    time_s = int(table.pts[number]) * float(table.stream.time_base)
    return FrameInfo(packet.pts, time_s, position, is_keyframe=True)


def _packet(table: KeyframeTable, number: int, data: bytes) -> Packet[VideoStream]:
    packet: Packet[VideoStream] = av.Packet(data)  # type: ignore[assignment]
    packet.pts = int(table.pts[number])
    packet.time_base = table.stream.time_base
    packet.is_keyframe = True
    return packet
