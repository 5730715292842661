"""Decode keyframes by the container's index, each from its own packet."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers.demux import read_packets
from reelabel.containers.packet_info import require_no_palette
from reelabel.containers.registry import missing_bytes, probe_file
from reelabel.containers.reordering import TimesOutOfOrderError, is_shown_early, keeps_decode_position
from reelabel.containers.stream_properties import StreamProperties
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames
from reelabel.decode.keyframe_check import prime_mpeg4_decoder
from reelabel.decode.packet_decoder import CodecParameters, affordable_threads, decode_packets_independently
from reelabel.decode.parameter_sets import brings_parameters
from reelabel.decode.splices import begins_splice
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.sampled_frames import UNKNOWN_POSITION
from reelabel.sources.sparse_file import ByteRange, SparseFile
from reelabel.strategies.keyframe_table import KeyframeTable
from reelabel.strategies.seek import times_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.containers.container_index import KeyframeIndex, OpenVideo
    from reelabel.containers.registry import ProbedFile
    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.sampled_frames import SampledFrames
    from reelabel.strategies.keyframe_table import SavedIndex

# Matroska may say where chroma samples lie. H.264, HEVC and AV1 say it themselves; of the others, only the stream's own
# decoder knows.
_SITED_BY_MATROSKA = frozenset({"vp8", "vp9"})


def extract_by_index(request: ExtractionRequest) -> SampledFrames:
    """Extract the picked keyframes, reading only the index and their packets.

    Raises:
        FallbackRequired: The container has no index, or the file contradicts it.
        VideoError: As `extract_keyframes` does.
    """
    return extract_with_index(request)[0]


def extract_with_index(request: ExtractionRequest) -> tuple[SampledFrames, SavedIndex]:
    """Extract as `extract_by_index` does.

    Returns:
        The frames, and what locates the keyframes of a remote file in later extractions; empty for a local file.
    """
    if request.every:
        raise FallbackRequired("all keyframes were requested")
    try:
        probed = probe_file(request.source)
        with probed.open(request.limits, strictly=True) as video:
            return _extract(request, probed, video)
    except VideoUnreadableError:
        raise FallbackRequired("the container cannot be opened from its header alone") from None


def _extract(request: ExtractionRequest, probed: ProbedFile, video: OpenVideo) -> tuple[SampledFrames, SavedIndex]:
    stream, file = video.stream, video.file
    codec = CodecParameters.of(stream.codec_context)
    index = probed.read_index(video)
    require_no_palette(index.first_packet)
    if index.first_pts is None and not request.segment.is_whole:
        raise FallbackRequired("frames precede the first keyframe in the index")
    times_s = times_of(index.pts, stream)
    first_s, earliest_s = (
        None if pts is None else float(times_of(np.array([pts]), stream)[0])
        for pts in (index.first_pts, index.earliest_pts)
    )
    chosen = request.choose(len(index.pts), times_s, first_s=first_s)
    numbers = list(dict.fromkeys(chosen))
    saved: SavedIndex = ()
    if isinstance(file, SparseFile):
        saved = file.extents
        file.prefetch(ByteRange(int(index.pos[number]), int(index.size[number])) for number in numbers)
    prime_mpeg4_decoder(stream.codec_context, index.first_packet)
    packets = _read_packets(index, numbers, probed, video)
    packets_s = times_of(np.array([packet.pts for packet in packets]), stream)
    is_spliced = any(begins_splice(packet, stream.codec_context) for packet in packets)
    total = None if is_spliced else index.frames
    unknown = np.full(len(index.pts), UNKNOWN_POSITION)
    frames_before = unknown if is_spliced else _frames_before(index, stream.codec_context)
    infos = [
        FrameInfo(packet.pts, shown_s, _position(before, packet, stream.codec_context), is_keyframe=True)
        for packet, shown_s, before in zip(packets, packets_s.tolist(), frames_before[numbers], strict=True)
    ]
    brings = brings_parameters(index.first_packet, stream.codec_context)
    decoded = _decode(index, packets, _decoders(request, video, codec, packets), others_bring_parameters=brings)
    describe = partial(StreamProperties.of, video.container, stream)
    got = assemble_frames(
        request,
        describe,
        chosen=chosen,
        frames=zip(infos, request.stats.each(decoded), strict=True),
        summary=IndexSummary(keyframes=len(index.pts), frames=total, keyframe_s=times_s, first_s=earliest_s),
        method="index",
    )
    are_times_right = index.pts[numbers].tolist() == [packet.pts for packet in packets]
    if not request.segment.is_whole and not are_times_right:
        raise FallbackRequired("keyframe times in the index are wrong", index_is_wrong=True)
    if saved and codec and are_times_right and index.is_self_sufficient and (np.diff(index.pts) > 0).all():
        saved = KeyframeTable(
            codec=codec,
            stream=describe(),
            orientation=got.orientation,
            pts=index.pts,
            pos=index.pos,
            size=index.size,
            frames_before=frames_before,
            frames=total,
            missing_bytes=missing_bytes(file, video.size_bytes),
            brings_parameters=brings,
            is_order_proven=index.is_order_proven or not stream.codec_context.codec.reorder,
        )
    return got, saved


def _read_packets(
    index: KeyframeIndex, numbers: Sequence[int], probed: ProbedFile, video: OpenVideo
) -> list[Packet[VideoStream]]:
    packets, is_proven = [], index.is_order_proven or not video.stream.codec_context.codec.reorder
    with probed.guard():
        for number in numbers:
            packets.append(index.read_packet(number))
            is_proven = is_proven or _shows_order(packets[-1], video)
    pts = [packet.pts for packet in packets if packet.pts is not None]
    if len(pts) < len(packets) or any(after <= before for before, after in pairwise(pts)):
        raise FallbackRequired("keyframes are not presented in index order")
    return packets


def _shows_order(keyframe: Packet[VideoStream], video: OpenVideo) -> bool:
    """Return whether the packet after a keyframe shows that pictures which are shown before it have earlier times.

    Raises:
        TimesOutOfOrderError: It is shown before the keyframe, but has a later time; or cannot be read.
    """
    codec = video.stream.codec_context
    if keeps_decode_position(keyframe, codec):
        return False  # no picture is
    if keyframe.pos is None:  # it was not read by the demuxer, so nor is what follows it
        raise TimesOutOfOrderError
    following = next(read_packets(video.container, video.stream), None)
    if following is None or following.pts is None or keyframe.pts is None:
        return False
    if following.pts >= keyframe.pts and is_shown_early(following, codec):
        raise TimesOutOfOrderError
    return following.pts < keyframe.pts


def _decoders(
    request: ExtractionRequest,
    video: OpenVideo,
    codec: CodecParameters | None,
    packets: Sequence[Packet[VideoStream]],
) -> list[VideoCodecContext]:
    """Return the stream's own decoder, and additional ones if several threads may be used."""
    # Side data, such as new extradata, would reach only one of the decoders.
    may_share = codec is not None and not any(any(packet.iter_sidedata()) for packet in packets)
    if video.container.format.name == "matroska,webm" and codec and codec.name in _SITED_BY_MATROSKA:
        may_share = False
    own = video.stream.codec_context
    more = affordable_threads(request.threads, own) - 1
    others = [codec.open(request.limits) for _ in range(more)] if codec and may_share else []
    return [own, *others]


def _decode(
    index: KeyframeIndex,
    packets: Sequence[Packet[VideoStream]],
    codecs: Sequence[VideoCodecContext],
    *,
    others_bring_parameters: bool,
) -> Iterator[VideoFrame]:
    for frame in decode_packets_independently(packets, codecs, others_bring_parameters=others_bring_parameters):
        if index.counts_packets and codecs[0].has_b_frames:
            raise FallbackRequired("presentation order differs from decode order")
        yield frame


def _frames_before(index: KeyframeIndex, codec: VideoCodecContext) -> npt.NDArray[np.int64]:
    """Return the presented frames before each keyframe, `UNKNOWN_POSITION` if unknown; shape (K,)."""
    # Frames before the first IDR picture of a stream may or may not be output.
    first = index.first_packet
    if index.frames_before is None or not first.is_keyframe or not keeps_decode_position(first, codec):
        return np.full(len(index.pts), UNKNOWN_POSITION)
    return index.frames_before


def _position(frames_before: np.int64, packet: Packet[VideoStream], codec: VideoCodecContext) -> int:
    """Return a keyframe's position in presentation order, if it follows from its position in the index."""
    return int(frames_before) if keeps_decode_position(packet, codec) else UNKNOWN_POSITION
