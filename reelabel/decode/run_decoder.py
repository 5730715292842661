"""Decode a run of wanted frames from the keyframe before it, and prove that each is the one announced."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import islice
from threading import Event, Lock
from typing import TYPE_CHECKING

import av.error
import av.logging
import numpy as np

from reelabel.containers.demux import read_packets
from reelabel.containers.packet_info import (
    TimesOutOfOrderError,
    check_shown_in_turn,
    ends_sequence,
    is_splice_point,
    nal_length_bytes,
    nal_units,
)
from reelabel.decode.packets import check_keyframe
from reelabel.decode.parameter_sets import (
    ColoursChangeError,
    check_interlaced_flag,
    check_parameter_sets,
    has_parameter_sets,
)
from reelabel.errors import FallbackRequired
from reelabel.output_order import MAX_REORDERED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.canvas import FrameInfo


MAX_PREROLL_GOPS = 3
# Of these, FFmpeg decodes successive frames in several threads, with the same result.
_FRAME_THREADED = frozenset({"h264", "hevc", "vp9", "av1"})
_STEADY = 1.5  # ratio of the longest step between frames to the shortest, where times are rounded
_MAX_DEPTH = 15  # pictures that FFmpeg's H.264 decoder can hold back


class FieldTimesError(FallbackRequired):
    """FFmpeg's MPEG-4 decoder counts in steps of the B-frame that it decodes first, and leaves out others by that."""


@dataclass(slots=True)
class DecodeStats:
    """The number of frames that decoders have output, used or not. Thread-safe."""

    frames: int = 0
    _lock: Lock = field(default_factory=Lock)

    def add(self, frames: int) -> None:
        with self._lock:
            self.frames += frames


@dataclass(slots=True, kw_only=True)
class RunDecoder:
    """Decodes runs of frames of one opened video.

    Attributes:
        container: The video, opened strictly, so that damage is an error.
        stream: Its video stream, of which nothing has been decoded yet.
        times: PTS of all frames of the video, ascending.
        keyframes: Positions of keyframes among them, ascending.
        is_order_proven: Whether `times` are known to be in the order in which the decoder outputs frames.
        threads: Threads that decode successive frames.
        reads_on: Read packets after the last wanted frame, to see whether a splice leaves it out.
        stopped: Set when the frames are no longer wanted.
    """

    container: InputContainer
    stream: VideoStream
    times: Sequence[int]
    keyframes: Sequence[int]
    stats: DecodeStats
    is_order_proven: bool = True
    threads: int = 1
    skip_loop_filter: bool = False
    reads_on: bool = False
    stopped: Event = field(default_factory=Event)
    _has_parameter_sets: bool | None = None
    _is_steady: bool | None = None

    def __post_init__(self) -> None:
        codec = self.stream.codec_context
        if self.skip_loop_filter:
            codec.options = codec.options | {"skip_loop_filter": "all"}
        # Where PyAV shows what FFmpeg logs, threads that log wait for Python, which waits for them to close a decoder.
        is_silent = av.logging.get_level() is None
        if self.threads > 1 and is_silent and codec.codec.canonical_name in _FRAME_THREADED:
            self._start_threads(codec)

    def _start_threads(self, codec: VideoCodecContext) -> None:
        """Have successive frames decoded in several threads.

        FFmpeg conceals damage to an H.264 picture, and flags it, when its decoding ends. Where pictures are reordered,
        another thread outputs it with the flags that it has by then; delaying output by as many pictures as there are
        threads makes sure that these are final.
        """
        threads, depth = self.threads, codec.reorder_depth
        if codec.codec.canonical_name == "h264" and depth:
            threads = min(threads, _MAX_DEPTH - depth)
            if threads <= 1:
                return
            codec.reorder_depth = depth + threads
        codec.thread_type, codec.thread_count = "FRAME", threads

    def decode(self, run: Sequence[FrameInfo]) -> Iterator[tuple[FrameInfo, VideoFrame]]:
        """Decode wanted frames, ascending, none of which can be reached from a later keyframe than the first.

        Raises FallbackRequired if a GOP does not decode to the frames announced.
        """
        number = bisect_right(self.keyframes, run[0].position) - 1
        skipper = NonReferenceFilter(self.stream.codec_context)
        gop = self._decode_from(self.keyframes[number], run, skipper)
        others = self._other_starts(number, skipper)
        for place, info in enumerate(run):
            while (frame := _frame_at(gop, info.position)) is None:
                if (start := next(others, None)) is None:
                    raise FallbackRequired("a GOP does not decode to the frames its packets announce")
                gop = self._decode_from(start, run[place:])
            yield info, frame
        for _ in gop:  # a wanted frame may depend on a damaged one that is shown later
            pass

    def _other_starts(self, number: int, skipper: NonReferenceFilter) -> Iterator[int]:
        if skipper.has_skipped or not number:
            yield self.keyframes[number]
        # A frame of an open GOP may depend on frames that only the previous GOP contains.
        yield from self.keyframes[max(0, number - MAX_PREROLL_GOPS) : number][::-1]

    def _decode_from(
        self, start: int, wanted: Sequence[FrameInfo], skipper: NonReferenceFilter | None = None
    ) -> Iterator[tuple[int, VideoFrame]]:
        """Yield positions and frames from a keyframe on, dropping leading frames, which are incomplete."""
        times = self.times
        has_begun = False
        pending: set[int] = set()
        packets: dict[int | None, Packet[VideoStream] | None] = dict.fromkeys(info.pts for info in wanted)
        try:
            if self._has_parameter_sets is None:
                self._has_parameter_sets = self._look_for_parameters()
            self.container.seek(times[start], stream=self.stream, backward=True)
            for frame in self._frames_from(times[start], packets, skipper, pending):
                position = bisect_left(times, frame.pts) if frame.pts is not None else len(times)
                if not has_begun and position < start:
                    continue  # a leading frame, which belongs to the previous GOP
                if position == len(times) or times[position] != frame.pts or frame.is_corrupt:
                    raise FallbackRequired("a frame is damaged, or its PTS matches no packet")
                if not has_begun and position > start:
                    raise FallbackRequired("a seek missed its target")
                has_begun = True
                self._check_output(frame, position, pending)
                if frame.pts in packets and (start or skipper):  # else the decoder has seen what a linear decode sees
                    check_interlaced_flag(frame, packets[frame.pts], self.stream.codec_context)
                    self._check_field_times(frame)
                yield position, frame
            if pending and not self.stopped.is_set():
                raise FallbackRequired("a frame is left out")
        except MemoryError:
            raise
        except av.error.FFmpegError:
            raise FallbackRequired("a GOP cannot be decoded") from None

    def _check_output(self, frame: VideoFrame, position: int, pending: set[int]) -> None:
        pending.discard(self.times[position])
        if pending and min(pending) < self.times[position]:
            raise FallbackRequired("a frame is left out, or shown in another order than that of time")
        number = bisect_left(self.keyframes, position)
        if number < len(self.keyframes) and self.keyframes[number] == position:
            check_keyframe(frame)

    def _check_field_times(self, frame: VideoFrame) -> None:
        """Raise FieldTimesError if a frame is of interlaced MPEG-4 with B-frames and a variable rate."""
        codec = self.stream.codec_context
        if codec.name != "mpeg4" or not (frame.interlaced_frame and codec.has_b_frames):
            return
        if self._is_steady is None:
            steps = np.diff(self.times)
            self._is_steady = bool(steps.max(initial=0) <= _STEADY * steps.min(initial=steps.max(initial=0)))
        if not self._is_steady:
            raise FieldTimesError("the times of fields depend on the first B-frame")

    def _look_for_parameters(self) -> bool:
        if self.stream.codec_context.codec.canonical_name != "h264":
            return False
        self.container.seek(self.times[0], stream=self.stream, backward=True)
        first = next(read_packets(self.container, self.stream), None)
        return first is not None and has_parameter_sets(first, self.stream.codec_context)

    def _frames_from(
        self,
        start_pts: int,
        packets: dict[int | None, Packet[VideoStream] | None],
        skipper: NonReferenceFilter | None,
        pending: set[int],
    ) -> Iterator[VideoFrame]:
        """Decode from a keyframe to the last wanted frame, skipping frames that nothing wanted depends on.

        The packets of wanted frames are stored in `packets`, whose keys are their PTS; and the PTS of all frames that
        the decoder should output, in `pending`.

        Skipped are the leading frames of an open GOP, which reference the previous GOP (H.264, D.2.8: recovery point;
        HEVC, 7.4.2.2: RASL), and what `skipper` does not accept.
        """
        codec = self.stream.codec_context
        codec.skip_frame = "DEFAULT"
        has_landed, has_ended, remaining = False, False, set(packets)
        latest = max(pts for pts in packets if pts is not None)
        read = read_packets(self.container, self.stream)
        for packet in read:
            is_leading = has_landed and packet.pts is not None and packet.pts < start_pts
            is_first = packet.pts == start_pts and not has_landed
            has_landed |= is_first
            if packet.is_keyframe:
                carry = is_first and bool(self._has_parameter_sets)
                check_parameter_sets(packet, codec, others_carry_them=carry)
                if is_splice_point(packet, codec, has_ended=has_ended):
                    raise FallbackRequired("a splice leaves out frames")
            has_ended = ends_sequence(packet, codec)
            if is_leading and codec.codec.reorder:
                continue
            if packet.pts in remaining:
                packets[packet.pts] = packet
            if skipper is None or skipper.accepts(packet, is_wanted=packet.pts in remaining):
                is_shown = has_landed and not (skipper and skipper.is_skipping)
                pending |= self._known_pts(packet.pts, since=start_pts) if is_shown else set()
                yield from self._count(codec.decode(packet))
            if not self.is_order_proven:
                check_shown_in_turn(packet, codec)
            remaining.discard(packet.pts)
            if not remaining or self.stopped.is_set():
                break
        if codec.has_b_frames and latest in pending:  # it is not shown yet
            self._look_ahead(latest, read, has_ended=has_ended)
        yield from self._count(codec.decode(None))

    def _look_ahead(self, latest: int, rest: Iterator[Packet[VideoStream]], *, has_ended: bool) -> None:
        """Check that what follows the last wanted frame is shown after it, and does not make a decoder leave it out."""
        if not self.is_order_proven:
            check_shown_in_turn(next(rest, None), self.stream.codec_context)
        if self.reads_on:
            self._check_not_left_out(latest, rest, has_ended=has_ended)

    def _check_not_left_out(self, latest: int, rest: Iterator[Packet[VideoStream]], *, has_ended: bool) -> None:
        """Check that no splice follows so closely that a linear decode leaves out the last wanted frame."""
        codec, position = self.stream.codec_context, bisect_left(self.times, latest)
        number = bisect_right(self.keyframes, position)
        following = self.keyframes[number] if number < len(self.keyframes) else len(self.times)
        within = 2 * MAX_REORDERED  # frames that are decoded before the splice, and its own leading pictures
        if codec.codec.canonical_name != "hevc" or following - position > within:
            return
        for packet in islice(rest, within):
            if packet.is_keyframe and is_splice_point(packet, codec, has_ended=has_ended):
                raise FallbackRequired("a splice leaves out frames")
            if packet.is_keyframe:
                return
            has_ended = ends_sequence(packet, codec)

    def _known_pts(self, pts: int | None, *, since: int) -> set[int]:
        at = len(self.times) if pts is None or pts < since else bisect_left(self.times, pts)
        return {self.times[at]} if at < len(self.times) and self.times[at] == pts else set()

    def _count(self, frames: list[VideoFrame]) -> list[VideoFrame]:
        self.stats.add(len(frames))
        return frames


def _frame_at(gop: Iterator[tuple[int, VideoFrame]], wanted: int) -> VideoFrame | None:
    try:
        for position, frame in gop:
            if position >= wanted:
                return frame if position == wanted else None
    except (ColoursChangeError, FieldTimesError, TimesOutOfOrderError):
        raise  # decoding from another keyframe would fail as well
    except FallbackRequired:
        pass
    return None


# Types of NAL units in H.264 (ITU-T H.264, table 7-1): slices, SEI, and those without meaning for a decoder.
_H264_STATELESS = frozenset({1, 2, 3, 4, 6, 9, 10, 11, 12})
# Types of NAL units in HEVC (ITU-T H.265, table 7-1): sub-layer non-reference pictures, and those without meaning for
# other pictures.
_HEVC_LEAVES = frozenset({0, 2, 4, 6, 8})  # TRAIL_N, TSA_N, STSA_N, RADL_N, RASL_N
_HEVC_STATELESS = frozenset({35, 38, 40})  # access unit delimiter, filler data, suffix SEI
_START_CODE = b"\0\0\1"  # FFmpeg looks for it in any packet


class NonReferenceFilter:
    """Skips pictures of one run that are neither wanted nor referred to.

    In H.264, FFmpeg keeps no picture whose `nal_ref_idc` is 0 as a reference (7.4.1), whatever later pictures state, so
    that it may skip it. In HEVC, no picture of the same temporal sub-layer refers to a sub-layer non-reference picture
    (7.4.2.2), and there are none above the highest sub-layer; if the flags of a stream are false, the decoder misses a
    reference, and reports the picture that refers to it as damaged.

    Attributes:
        has_skipped: Whether packets were left out that a stream with false flags may refer to.
        is_skipping: Whether the decoder may skip the packet that was accepted last.
    """

    def __init__(self, codec: VideoCodecContext) -> None:
        """Read the stream's configuration; without one, as in an MP4 or Matroska file, every packet is decoded."""
        self._codec = codec
        self._h264_length_bytes = nal_length_bytes(codec, only="h264")
        self._hevc_length_bytes = nal_length_bytes(codec, only="hevc")
        # The number of sub-layers (ISO/IEC 14496-15, 8.3.2.1) is 0 where it is unknown.
        self._highest = max(0, ((codec.extradata or b"")[21] >> 3 & 7) - 1) if self._hevc_length_bytes else 0
        self.has_skipped = self.is_skipping = False

    def accepts(self, packet: Packet[VideoStream], *, is_wanted: bool) -> bool:
        """Return whether to give a packet to the decoder, after setting what it skips of it."""
        if any(packet.iter_sidedata()):  # it may change the configuration
            self._h264_length_bytes = self._hevc_length_bytes = None
            self._codec.skip_frame = "DEFAULT"
            self.is_skipping = False
        if self._h264_length_bytes:
            self.is_skipping = not is_wanted and _is_safe_to_skip(packet, self._h264_length_bytes)
            self._codec.skip_frame = "NONREF" if self.is_skipping else "DEFAULT"
            return True
        is_leaf = not is_wanted and self._is_hevc_leaf(packet)
        self.has_skipped |= is_leaf
        return not is_leaf

    def _is_hevc_leaf(self, packet: Packet[VideoStream]) -> bool:
        if self._hevc_length_bytes is None:
            return False
        headers = _nal_headers(memoryview(packet), self._hevc_length_bytes)
        pictures = [header for header in headers if header >> 9 not in _HEVC_STATELESS]
        are_highest = {header & 0x1FF for header in pictures} == {self._highest + 1}  # and of the base layer
        return are_highest and all(header >> 9 in _HEVC_LEAVES for header in pictures)


def _is_safe_to_skip(packet: Packet[VideoStream], length_bytes: int) -> bool:
    """Return whether FFmpeg would skip nothing but slices: it passes over any NAL unit whose `nal_ref_idc` is 0."""
    kinds = [header >> 8 for header in _nal_headers(memoryview(packet), length_bytes)]
    return all(kind & 0x60 or kind & 0x1F in _H264_STATELESS for kind in kinds)


def _nal_headers(data: memoryview, length_bytes: int) -> list[int]:
    """Return the first two bytes of each NAL unit as one number; 0, which no picture has, for unreadable bytes."""
    units = list(nal_units(data, length_bytes))
    headers = [int.from_bytes(unit[:2]) for unit in units]
    is_read = sum(length_bytes + len(unit) for unit in units) == len(data)
    return headers if is_read and not any(_START_CODE in bytes(unit) for unit in units) else [*headers, 0]
