"""Decode frames anywhere on the timeline, each from the keyframe before it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import av.error

from reelabel.containers.demux import open_video, read_packets
from reelabel.containers.registry import probe_file
from reelabel.containers.stream_properties import StreamProperties
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames
from reelabel.decode.keyframe_check import require_keyframe
from reelabel.errors import VideoUnreadableError
from reelabel.fast_path import FastPathUnavailableError
from reelabel.sources.sparse_file import SparseFile
from reelabel.strategies.seek import list_packets, presentation_order
from reelabel.strategies.timeline import choose_positions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import DecodeStats, ExtractionRequest
    from reelabel.limits import Limits
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sources.video_file import VideoFile


def spans_to_decode(positions: Iterable[int], keyframes: Sequence[int]) -> list[tuple[int, int]]:
    """Split wanted frames into runs between which a decoder can seek to a keyframe.

    Args:
        positions: Positions of wanted frames in the linear decode, ascending.
        keyframes: Positions of keyframes, ascending; the first is not after the first wanted frame.

    Returns:
        First and last frame of each run, the first being a keyframe. That is the most to be decoded: in some codecs,
        frames on which no wanted one depends can be skipped.
    """
    spans: list[tuple[int, int]] = []
    for position in positions:
        start = keyframes[bisect_right(keyframes, position) - 1]
        if spans and start <= spans[-1][1] + 1:
            spans[-1] = spans[-1][0], position
        else:
            spans.append((start, position))
    return spans


_MAX_PREROLL_GOPS = 3


def extract_by_gops(request: ExtractionRequest) -> SampledFrames:
    """Decode the GOPs that contain a chosen frame, each once.

    Raises:
        FastPathUnavailableError: The packets are not sufficient, or a GOP does not decode to the frames they announce.
        VideoError: As `extract_keyframes` does.
    """
    table = None if isinstance(request.source, SparseFile) else read_frame_times(request.source, request.limits)
    with open_video(request.source, request.limits) as (container, stream):
        times, keyframes = table or presentation_order(list_packets(container, stream, request.limits))
        choice = choose_positions(request, times, stream)
    if choice.positions[0] < keyframes[0]:  # an edit list hides the keyframe they depend on
        raise FastPathUnavailableError("frames precede the first presented keyframe")
    are_key = set(keyframes)
    unique = dict.fromkeys(choice.positions)
    infos = [FrameInfo(times[position], position, is_keyframe=position in are_key) for position in unique]
    pts = [times[position] for position in keyframes]
    summary = IndexSummary(keyframes=len(keyframes), frames=len(times), keyframe_pts=pts, first_pts=times[0])
    with open_video(request.source, request.limits, strictly=True) as opened:
        frames, describe = (
            _decode_chosen(*opened, infos, times, keyframes, request.stats),
            partial(StreamProperties.of, *opened),
        )
        got = assemble_frames(request, describe, chosen=choice.positions, frames=frames, summary=summary, method="seek")
    return choice.measured(got)


def read_frame_times(file: VideoFile, limits: Limits) -> tuple[list[int], list[int]] | None:
    """Read from the header what `presentation_order` computes from all packets; None if it is not sufficient.

    Returns:
        The PTS of all frames in the stream's time base, ascending, and the positions of keyframes among them.

    Raises:
        VideoTooLargeError: There are more frames than `limits.max_frames`.
    """
    try:
        probed = probe_file(file)
        read = probed.container.read_frame_times
        if read is None:
            return None
        with probed.open(limits) as video, probed.guard():
            return read(video)
    except (FastPathUnavailableError, VideoUnreadableError):
        return None


def _decode_chosen(
    container: InputContainer,
    stream: VideoStream,
    infos: list[FrameInfo],
    times: list[int],
    keyframes: list[int],
    stats: DecodeStats,
) -> Iterator[tuple[FrameInfo, VideoFrame]]:
    """Decode from a keyframe to each chosen frame, reading on into the next GOP or seeking past unneeded ones."""
    for run in _split_into_runs(infos, keyframes):
        number = bisect_right(keyframes, run[0].position) - 1
        earlier = iter(keyframes[max(0, number - _MAX_PREROLL_GOPS) : number][::-1])
        gop = _decode_from(container, stream, keyframes[number], times, wanted=run, stats=stats)
        for place, info in enumerate(run):
            while (frame := _frame_at(gop, info.position)) is None:
                # A frame of an open GOP may depend on frames that only the previous GOP contains.
                if (start := next(earlier, None)) is None:
                    raise FastPathUnavailableError("a GOP does not decode to the frames its packets announce")
                gop = _decode_from(container, stream, start, times, wanted=run[place:], stats=stats)
            yield info, frame


def _split_into_runs(infos: list[FrameInfo], keyframes: list[int]) -> list[list[FrameInfo]]:
    """Split the chosen frames into runs between which the decoder can seek to a keyframe."""
    spans = spans_to_decode((info.position for info in infos), keyframes)
    return [[info for info in infos if first <= info.position <= last] for first, last in spans]


def _frame_at(gop: Iterator[tuple[int, VideoFrame]], wanted: int) -> VideoFrame | None:
    """Return the frame at a position, or None if decoding does not reach it."""
    with suppress(FastPathUnavailableError):
        for position, frame in gop:
            if position >= wanted:
                return frame if position == wanted else None
    return None


def _decode_from(
    container: InputContainer,
    stream: VideoStream,
    start: int,
    times: list[int],
    *,
    wanted: list[FrameInfo],
    stats: DecodeStats,
) -> Iterator[tuple[int, VideoFrame]]:
    """Yield positions and frames from a keyframe on, dropping leading frames, which are incomplete."""
    container.seek(times[start], stream=stream, backward=True)
    begun = False
    try:
        for frame in _frames_from(container, stream, times[start], {info.pts for info in wanted}, stats):
            position = bisect_left(times, frame.pts) if frame.pts is not None else len(times)
            if not begun and position < start:
                continue  # a leading frame, which belongs to the previous GOP
            if position == len(times) or times[position] != frame.pts or frame.is_corrupt:
                raise FastPathUnavailableError("a frame is damaged, or its PTS matches no packet")
            if not begun and position > start:
                raise FastPathUnavailableError("a seek missed its target")
            if not begun:
                require_keyframe(frame)
            begun = True
            yield position, frame
    except MemoryError:
        raise
    except av.error.FFmpegError:
        raise FastPathUnavailableError("a GOP cannot be decoded") from None


def _frames_from(
    container: InputContainer,
    stream: VideoStream,
    start_pts: int,
    wanted: set[int | None],
    stats: DecodeStats,
) -> Iterator[VideoFrame]:
    """Decode from a keyframe to the last wanted frame, skipping frames that nothing wanted depends on.

    Skipped are the leading frames of an open GOP, which reference the previous GOP (H.264, D.2.8: recovery point;
    HEVC, 7.4.2.2: RASL), and non-reference frames in H.264 (7.4.1: nal_ref_idc).
    """
    codec = stream.codec_context
    has_landed = False
    for packet in read_packets(container, stream):
        is_leading = has_landed and packet.pts is not None and packet.pts < start_pts
        has_landed = has_landed or packet.pts == start_pts
        if is_leading and codec.codec.reorder:
            continue
        is_wanted = packet.pts in wanted
        if codec.name == "h264":
            codec.skip_frame = "DEFAULT" if is_wanted else "NONREF"
        yield from _counted(codec.decode(packet), stats)
        wanted.discard(packet.pts)
        if not wanted:
            break
    yield from _counted(codec.decode(None), stats)


def _counted(frames: list[VideoFrame], stats: DecodeStats) -> list[VideoFrame]:
    """Count decoded frames, used or not."""
    stats.frames += len(frames)
    return frames
