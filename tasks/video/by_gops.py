"""Frames chosen on the timeline, each decoded from the keyframe before it.

The packets are listed; then those GOPs are decoded that hold a chosen frame, each once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import av.error

from tasks.video.by_seeking import arrange, list_packets
from tasks.video.by_timeline import choose
from tasks.video.misled import MisledError
from tasks.video.proof import require_keyframe
from tasks.video.ranges import SparseFile
from tasks.video.shots import Census, Sight, shoot
from tasks.video.source import open_video, read_packets
from tasks.video.spans import spans_to_decode
from tasks.video.stream import StreamFacts
from tasks.video.timetable import read_timetable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from tasks.video.keyframes import Keyframes
    from tasks.video.shots import Request, Tally

_MOST_RUN_UPS = 3  # GOPs


def extract_by_gops(request: Request) -> Keyframes:
    """Decode the GOPs that hold a chosen frame, each once.

    Raises:
        MisledError: The packets do not tell enough, or a GOP does not show what they announce.
        VideoError: As `extract_keyframes` does.
    """
    table = _timetable(request)
    with open_video(request.source, request.limits) as (container, stream):
        times, keyframes = table or arrange(list_packets(container, stream, request.limits))
        choice = choose(request, times, stream)
    if choice.positions[0] < keyframes[0]:  # an edit list hides the keyframe that they need
        raise MisledError("frames stand before the first keyframe that is shown")
    are_key = set(keyframes)
    unique = dict.fromkeys(choice.positions)
    sights = [Sight(times[position], position, is_keyframe=position in are_key) for position in unique]
    pts = [times[position] for position in keyframes]
    census = Census(keyframes=len(keyframes), frames=len(times), keyframe_pts=pts, first_pts=times[0])
    with open_video(request.source, request.limits, strictly=True) as opened:
        frames, describe = _walk(*opened, sights, times, keyframes, request.tally), partial(StreamFacts.of, *opened)
        got = shoot(request, describe, chosen=choice.positions, frames=frames, census=census, method="seek")
    return choice.measured(got)


def _timetable(request: Request) -> tuple[list[int], list[int]] | None:
    if isinstance(request.source, SparseFile):
        return None
    try:
        return read_timetable(request.source, request.limits)
    except MisledError:
        return None


def _walk(
    container: InputContainer,
    stream: VideoStream,
    sights: list[Sight],
    times: list[int],
    keyframes: list[int],
    tally: Tally,
) -> Iterator[tuple[Sight, VideoFrame]]:
    """Decode from keyframe to chosen frames; go on where the next GOP holds one, and jump where it does not."""
    for run in _runs(sights, keyframes):
        number = bisect_right(keyframes, run[0].position) - 1
        earlier = iter(keyframes[max(0, number - _MOST_RUN_UPS) : number][::-1])
        gop = _decode_from(container, stream, keyframes[number], times, wanted=run, tally=tally)
        for place, sight in enumerate(run):
            while (frame := _find(gop, sight.position)) is None:
                # A frame of an open GOP may let go of frames that only the GOP before has.
                if (start := next(earlier, None)) is None:
                    raise MisledError("a GOP does not show what its packets announce")
                gop = _decode_from(container, stream, start, times, wanted=run[place:], tally=tally)
            yield sight, frame


def _runs(sights: list[Sight], keyframes: list[int]) -> list[list[Sight]]:
    """Part chosen frames where the decoder can jump from one to a keyframe before the next."""
    spans = spans_to_decode((sight.position for sight in sights), keyframes)
    return [[sight for sight in sights if first <= sight.position <= last] for first, last in spans]


def _find(gop: Iterator[tuple[int, VideoFrame]], wanted: int) -> VideoFrame | None:
    """Give the frame at a position; None where the GOP does not come so far."""
    with suppress(MisledError):
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
    wanted: list[Sight],
    tally: Tally,
) -> Iterator[tuple[int, VideoFrame]]:
    """Give positions and frames from a keyframe on; what a decoder shows before it is not whole."""
    container.seek(times[start], stream=stream, backward=True)
    begun = False
    try:
        for frame in _frames_from(container, stream, times[start], {sight.pts for sight in wanted}, tally):
            position = bisect_left(times, frame.pts) if frame.pts is not None else len(times)
            if not begun and position < start:
                continue  # a leading frame, of the GOP before
            if position == len(times) or times[position] != frame.pts or frame.is_corrupt:
                raise MisledError("a frame is damaged, or has a time that no packet announces")
            if not begun and position > start:
                raise MisledError("a seek landed elsewhere")
            if not begun:
                require_keyframe(frame)
            begun = True
            yield position, frame
    except MemoryError:
        raise
    except av.error.FFmpegError:
        raise MisledError("a GOP does not decode") from None


def _frames_from(
    container: InputContainer,
    stream: VideoStream,
    start_pts: int,
    wanted: set[int | None],
    tally: Tally,
) -> Iterator[VideoFrame]:
    """Decode from a keyframe to the last frame that is wanted, passing over what no other frame needs.

    That is, in an open GOP, the frames shown before the keyframe, which need the GOP before (H.264, D.2.8:
    recovery point; HEVC, 7.4.2.2: RASL); and H.264's frames that are no reference (7.4.1: nal_ref_idc).
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
        yield from _counted(codec.decode(packet), tally)
        wanted.discard(packet.pts)
        if not wanted:
            break
    yield from _counted(codec.decode(None), tally)


def _counted(frames: list[VideoFrame], tally: Tally) -> list[VideoFrame]:
    """Count what was decoded, whether it is looked at or not."""
    tally.frames += len(frames)
    return frames
