"""Decode keyframes that a container lists, each from its own packet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers.container_format import NO_TIME_BASE, KeyframePackets, OpenVideo
from reelabel.containers.demux import read_packets
from reelabel.containers.packet_info import (
    TimesOutOfOrderError,
    check_no_palette,
    is_closed_gop_start,
    is_shown_early,
    is_splice_point,
)
from reelabel.containers.stream_properties import header_info
from reelabel.decode.canvas import Canvas, Decoded, FrameInfo, frames_of
from reelabel.decode.packets import can_copy, copy_decoder, decode_single_packet, prime_mpeg4_decoder, threads_that_fit
from reelabel.decode.parameter_sets import check_interlaced_flag, check_parameter_sets, has_parameter_sets
from reelabel.errors import FallbackRequired
from reelabel.index import UNKNOWN_POSITION, Int64s, VideoIndex
from reelabel.sources.sparse_file import ByteRange, SparseFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

    from reelabel.decode.render import View
    from reelabel.decode.run_decoder import DecodeStats
    from reelabel.segment import Segment

# Matroska may state where chroma samples lie. H.264, HEVC and AV1 state it themselves; for the others, only the
# stream's own decoder shows it.
_SITED_BY_MATROSKA = frozenset({"vp8", "vp9"})


@dataclass(slots=True, kw_only=True)
class KeyframeDecoder:
    video: OpenVideo
    index: VideoIndex
    keyframes: KeyframePackets

    @classmethod
    def of(cls, video: OpenVideo) -> KeyframeDecoder:
        """List the keyframes; raise FallbackRequired if there is no index that suffices."""
        index, keyframes = video.read_keyframes()
        check_no_palette(keyframes.first)
        if index.time_s is None:
            raise FallbackRequired(NO_TIME_BASE)
        return cls(video=video, index=index, keyframes=keyframes)

    def decode(self, rows: Int64s, view: View, stats: DecodeStats, *, segment: Segment, threads: int) -> Decoded:
        """Decode some keyframes; raise FallbackRequired if the file contradicts the index."""
        index, file, codec = self.index, self.video.file, self.video.stream.codec_context
        if isinstance(file, SparseFile):
            file.prefetch(map(ByteRange, index.pos[rows].tolist(), index.size[rows].tolist()))
        prime_mpeg4_decoder(codec, self.keyframes.first)
        packets = self._read_packets(rows.tolist())
        if is_spliced := any(is_splice_point(packet, codec) for packet in packets):
            index = replace(index, total_frames=None, position=np.full_like(index.position, UNKNOWN_POSITION))
        others_carry_them = has_parameter_sets(self.keyframes.first, codec)
        for packet in packets:
            check_parameter_sets(packet, codec, others_carry_them=others_carry_them)
        describe = partial(header_info, self.video.container, self.video.stream)
        canvas = Canvas(_with_packet_times(index, rows, packets), view, self.video.limits, describe)
        # The first packet goes to the stream's own decoder: only its frames carry the rotation.
        items = list(zip(canvas.wanted, packets, strict=True))
        decoders = self._decoders(packets, threads)
        canvas.share(items, [partial(self._draw, canvas, stats, decoder) for decoder in decoders])
        positions = index.position[rows]
        positions[[not is_closed_gop_start(packet, codec) for packet in packets]] = UNKNOWN_POSITION
        decoded = canvas.finish(positions, is_counted=not is_spliced)
        are_times_right = index.pts[rows].tolist() == [packet.pts for packet in packets]
        if not segment.is_whole and not are_times_right:
            raise FallbackRequired("keyframe times in the index are wrong", index_is_wrong=True)
        return decoded

    def _draw(
        self,
        canvas: Canvas,
        stats: DecodeStats,
        codec: VideoCodecContext,
        items: Iterable[tuple[FrameInfo, Packet[VideoStream]]],
    ) -> None:
        for info, packet in items:
            frame = decode_single_packet(codec, packet)
            stats.add(1)
            check_interlaced_flag(frame, packet, codec)
            if self.keyframes.counts_packets and codec.has_b_frames:
                raise FallbackRequired("presentation order differs from decode order")
            canvas.draw(info, frame)
            del frame
            if canvas.stopped.is_set():
                return

    def _read_packets(self, rows: Sequence[int]) -> list[Packet[VideoStream]]:
        packets, is_proven = [], self.index.is_order_proven
        with self.video.guard():
            for row in rows:
                packets.append(self.keyframes.read(row))
                is_proven = is_proven or _shows_order(packets[-1], self.video)
        pts = [packet.pts for packet in packets if packet.pts is not None]
        if len(pts) < len(packets) or any(after <= before for before, after in pairwise(pts)):
            raise FallbackRequired("keyframes are not presented in index order")
        return packets

    def _decoders(self, packets: Sequence[Packet[VideoStream]], threads: int) -> list[VideoCodecContext]:
        own = self.video.stream.codec_context
        # Side data, such as new extradata, would reach only one of the decoders.
        may_share = can_copy(own) and not any(any(packet.iter_sidedata()) for packet in packets)
        if self.video.container.format.name == "matroska,webm" and own.codec.name in _SITED_BY_MATROSKA:
            may_share = False
        more = min(threads_that_fit(threads, own), len(packets)) - 1 if may_share else 0
        return [own, *(copy_decoder(own, self.video.limits) for _ in range(more))]


def _with_packet_times(index: VideoIndex, rows: Int64s, packets: Sequence[Packet[VideoStream]]) -> list[FrameInfo]:
    """Return keyframes at the times of their packets, which are exact, unlike those of some indexes."""
    unit_s = float(index.info.time_base)
    return [
        info._replace(pts=packet.pts or 0, time_s=(packet.pts or 0) * unit_s, is_keyframe=True)
        for info, packet in zip(frames_of(index, rows), packets, strict=True)
    ]


def _shows_order(keyframe: Packet[VideoStream], video: OpenVideo) -> bool:
    """Return whether the packet after a keyframe, if it is shown before it, has an earlier time as well."""
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
