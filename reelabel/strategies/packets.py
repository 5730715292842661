"""Decode keyframes that an index lists, each from its own packet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import av
import numpy as np

from reelabel.containers.container_format import NO_TIME_BASE
from reelabel.containers.demux import read_packets
from reelabel.containers.formats import missing_bytes, probe_file
from reelabel.containers.packet_info import (
    TimesOutOfOrderError,
    check_no_palette,
    is_closed_gop_start,
    is_shown_early,
    is_splice_point,
)
from reelabel.containers.stream_properties import check_frame_size, video_info
from reelabel.decode.assemble import assemble_frames, frames_of
from reelabel.decode.keyframe_check import prime_mpeg4_decoder
from reelabel.decode.packet_decoder import CodecParameters, decode_packets_independently, threads_that_fit
from reelabel.decode.parameter_sets import brings_parameters
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.sampled_frames import UNKNOWN_POSITION
from reelabel.sources.sparse_file import ByteRange, SparseFile
from reelabel.strategies.keyframe_table import KeyframeTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.containers.container_format import KeyframePackets, OpenVideo
    from reelabel.containers.formats import ProbedFile
    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.index import VideoIndex, VideoInfo
    from reelabel.sampled_frames import Orientation, SampledFrames
    from reelabel.sampling.choose import Chosen
    from reelabel.strategies.keyframe_table import SavedIndex

# Matroska may state where chroma samples lie. H.264, HEVC and AV1 state it themselves; for the others, only the
# stream's own decoder shows it.
_SITED_BY_MATROSKA = frozenset({"vp8", "vp9"})


def extract_by_keyframe_packets(request: ExtractionRequest) -> tuple[SampledFrames, SavedIndex]:
    """Extract the chosen keyframes, reading only the container's index and their packets.

    Returns:
        The frames, and what locates the keyframes of a remote file in later extractions; empty for a local file.

    Raises:
        FallbackRequired: The container has no index, or the file contradicts it.
        VideoError: As `extract_local` does.
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
    index, keyframes = probed.read_keyframes(video)
    check_no_palette(keyframes.first)
    if not index.is_start_known and not request.segment.is_whole:
        raise FallbackRequired("frames precede the first keyframe in the index")
    if index.time_s is None:
        raise FallbackRequired(NO_TIME_BASE)
    chosen = request.choose(index)
    rows = chosen.unique
    saved: SavedIndex = ()
    if isinstance(file, SparseFile):
        saved = file.extents
        file.prefetch(map(ByteRange, index.pos[rows].tolist(), index.size[rows].tolist()))
    prime_mpeg4_decoder(stream.codec_context, keyframes.first)
    packets = _read_packets(index, keyframes, rows.tolist(), probed, video)
    if any(is_splice_point(packet, stream.codec_context) for packet in packets):
        index = replace(index, total_frames=None, position=np.full_like(index.position, UNKNOWN_POSITION))
    brings = brings_parameters(keyframes.first, stream.codec_context)
    describe = partial(video_info, video.container, stream)
    decoding = _Decoding(
        codecs=_decoders(request, video, codec, packets),
        describe=describe,
        others_bring_parameters=brings,
        counts_packets=keyframes.counts_packets,
    )
    got = decoding.extract(request, index, chosen, packets)
    are_times_right = index.pts[rows].tolist() == [packet.pts for packet in packets]
    if not request.segment.is_whole and not are_times_right:
        raise FallbackRequired("keyframe times in the index are wrong", index_is_wrong=True)
    if saved and codec and are_times_right and keyframes.is_self_sufficient:
        saved = KeyframeTable(
            codec=codec,
            info=describe(),
            orientation=got.orientation,
            pts=index.pts,
            pos=index.pos,
            size=index.size,
            frames_before=index.position,
            frames=index.total_frames,
            missing_bytes=missing_bytes(file, video.size_bytes),
            brings_parameters=brings,
            is_order_proven=index.is_order_proven,
        )
    return got, saved


def extract_by_table(request: ExtractionRequest, file: SparseFile, table: KeyframeTable) -> SampledFrames:
    """Extract the chosen keyframes, reading only their packets.

    Raises:
        FallbackRequired: A packet does not decode to a keyframe.
        VideoError: As `extract_local` does.
    """
    if request.every:
        raise FallbackRequired("a keyframe table serves only picks")
    check_frame_size(table.codec.width, table.codec.height, request.limits)
    index = table.index
    chosen = request.choose(index)
    rows = chosen.unique.tolist()
    spans = [ByteRange(int(table.pos[row]), int(table.size[row])) for row in rows]
    file.prefetch(spans)
    packets = [_packet(table, row, file.read_span(span)) for row, span in zip(rows, spans, strict=True)]
    codecs = [table.codec.open(request.limits) for _ in range(threads_that_fit(request.threads, table.codec))]
    if not table.is_order_proven and not all(is_closed_gop_start(packet, codecs[0]) for packet in packets):
        raise TimesOutOfOrderError
    decoding = _Decoding(
        codecs=codecs,
        describe=lambda: table.info,
        others_bring_parameters=table.brings_parameters,
        orientation=table.orientation,
    )
    return decoding.extract(request, index, chosen, packets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoding:
    """Decoders of packets, and properties of their stream.

    Attributes:
        codecs: The decoders.
        describe: Returns the stream's properties.
        others_bring_parameters: Whether other packets bring parameter sets.
        orientation: Orientation of the frames; None reads it from the first.
        counts_packets: Whether PTS are numbers of packets, which are wrong if the decoder reorders frames.
    """

    codecs: Sequence[VideoCodecContext]
    describe: Callable[[], VideoInfo]
    others_bring_parameters: bool
    orientation: Orientation | None = None
    counts_packets: bool = False

    def extract(
        self, request: ExtractionRequest, index: VideoIndex, chosen: Chosen, packets: Sequence[Packet[VideoStream]]
    ) -> SampledFrames:
        """Decode the packets of chosen keyframes, whose PTS are exact, unlike those of some indexes."""
        unit_s, unique = float(index.info.time_base), chosen.unique
        wanted = [
            info._replace(pts=packet.pts or 0, time_s=(packet.pts or 0) * unit_s, is_keyframe=True)
            for info, packet in zip(frames_of(index, unique), packets, strict=True)
        ]
        positions = index.position.copy()
        positions[unique[[not is_closed_gop_start(packet, self.codecs[0]) for packet in packets]]] = UNKNOWN_POSITION
        return assemble_frames(
            request,
            self.describe,
            index=replace(index, position=positions),
            chosen=chosen,
            wanted=wanted,
            frames=zip(wanted, request.stats.each(self._decode(packets)), strict=True),
            method="index",
            orientation=self.orientation,
        )

    def _decode(self, packets: Sequence[Packet[VideoStream]]) -> Iterator[VideoFrame]:
        brings = self.others_bring_parameters
        for frame in decode_packets_independently(packets, self.codecs, others_bring_parameters=brings):
            if self.counts_packets and self.codecs[0].has_b_frames:
                raise FallbackRequired("presentation order differs from decode order")
            yield frame


def _packet(table: KeyframeTable, number: int, data: bytes) -> Packet[VideoStream]:
    packet: Packet[VideoStream] = av.Packet(data)  # type: ignore[assignment]
    packet.pts = int(table.pts[number])
    packet.time_base = table.info.time_base
    packet.is_keyframe = True
    return packet


def _read_packets(
    index: VideoIndex, keyframes: KeyframePackets, rows: Sequence[int], probed: ProbedFile, video: OpenVideo
) -> list[Packet[VideoStream]]:
    packets, is_proven = [], index.is_order_proven
    with probed.guard():
        for row in rows:
            packets.append(keyframes.read(row))
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
    if is_closed_gop_start(keyframe, codec):
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
    more = threads_that_fit(request.threads, own) - 1
    others = [codec.open(request.limits) for _ in range(more)] if codec and may_share else []
    return [own, *others]
