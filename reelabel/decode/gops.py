"""Decode chosen frames, each from the keyframe before it.

The one place that turns GOPs into pixels, for files and for ranges of remote ones alike. It is given which frames a
video has; what it decodes is compared with that, and anything else than the frames announced ends the attempt.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import av.error

from reelabel.containers.demux import read_packets
from reelabel.decode.keyframe_check import require_keyframe
from reelabel.fast_path import FastPathUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import DecodeStats, ExtractionRequest, FrameInfo

MAX_PREROLL_GOPS = 3


class Timeline(NamedTuple):
    """The frames of a video, as its packets or its header announce them.

    Attributes:
        times: PTS of all frames in the stream's time base, ascending.
        keyframes: Positions of keyframes among them, ascending.
        reopen: Opens the video again as it is open.
    """

    times: Sequence[int]
    keyframes: Sequence[int]
    reopen: Callable[[], AbstractContextManager[tuple[InputContainer, VideoStream]]]


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


def decode_chosen(
    opened: tuple[InputContainer, VideoStream],
    chosen: Sequence[FrameInfo],
    timeline: Timeline,
    request: ExtractionRequest,
) -> Iterator[tuple[FrameInfo, VideoFrame]]:
    """Decode from a keyframe to each chosen frame, reading on into the next GOP or seeking past unneeded ones.

    Args:
        opened: The video, open. `timeline.reopen` opens it again, for other threads too; of a remote one, the bytes of
            `spans_to_decode` are at hand.
        chosen: The wanted frames, each once, ascending.
        timeline: The frames of the video.
        request: What is extracted: source, limits, threads, and the statistics to keep.

    Yields:
        The wanted frames, in order.

    Raises:
        FastPathUnavailableError: A GOP does not decode to the frames announced.
    """
    for run in _split_into_runs(chosen, timeline.keyframes):
        yield from _decode_run(opened, run, timeline, request.stats)


def _decode_run(
    opened: tuple[InputContainer, VideoStream], run: list[FrameInfo], timeline: Timeline, stats: DecodeStats
) -> Iterator[tuple[FrameInfo, VideoFrame]]:
    keyframes = timeline.keyframes
    number = bisect_right(keyframes, run[0].position) - 1
    earlier = iter(keyframes[max(0, number - MAX_PREROLL_GOPS) : number][::-1])
    gop = _decode_from(opened, keyframes[number], timeline.times, wanted=run, stats=stats)
    for place, info in enumerate(run):
        while (frame := _frame_at(gop, info.position)) is None:
            # A frame of an open GOP may depend on frames that only the previous GOP contains.
            if (start := next(earlier, None)) is None:
                raise FastPathUnavailableError("a GOP does not decode to the frames its packets announce")
            gop = _decode_from(opened, start, timeline.times, wanted=run[place:], stats=stats)
        yield info, frame


def _split_into_runs(chosen: Sequence[FrameInfo], keyframes: Sequence[int]) -> list[list[FrameInfo]]:
    """Split the chosen frames into runs between which the decoder can seek to a keyframe."""
    spans = spans_to_decode((info.position for info in chosen), keyframes)
    return [[info for info in chosen if first <= info.position <= last] for first, last in spans]


def _frame_at(gop: Iterator[tuple[int, VideoFrame]], wanted: int) -> VideoFrame | None:
    """Return the frame at a position, or None if decoding does not reach it."""
    with suppress(FastPathUnavailableError):
        for position, frame in gop:
            if position >= wanted:
                return frame if position == wanted else None
    return None


def _decode_from(
    opened: tuple[InputContainer, VideoStream],
    start: int,
    times: Sequence[int],
    *,
    wanted: list[FrameInfo],
    stats: DecodeStats,
) -> Iterator[tuple[int, VideoFrame]]:
    """Yield positions and frames from a keyframe on, dropping leading frames, which are incomplete."""
    container, stream = opened
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
