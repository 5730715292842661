"""Decode chosen frames, each from the keyframe before it.

The only code that turns GOPs into pixels, for local and remote files alike. Decoded frames are compared with the index,
and any difference ends the attempt.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from reelabel.decode.packets import threads_that_fit
from reelabel.decode.run_decoder import DecodeStats, RunDecoder
from reelabel.errors import FallbackRequired
from reelabel.sources.sparse_file import BLOCK_BYTES, ByteRange, merge_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.canvas import Canvas, FrameInfo
    from reelabel.index import Int64s, VideoIndex

    Opened = tuple[InputContainer, VideoStream]

_MAX_REST_BYTES = 128 * 1024  # cheaper to read than another request for what follows them
_MAX_RANGES = 512  # requests for one video; a file stored in more pieces is faster to download
LEAST_SHARED_PIXELS = 4 * 1024**2  # of all frames; for fewer, it does not pay to open the video again
LEAST_THREADED_PIXELS = 96 * 1024  # of a picture; a smaller one takes less time to decode than threads take to meet
_PIECE_FRAMES = 16  # to decode them takes much longer than to seek to them


def spans_to_decode(
    positions: Iterable[int], keyframes: Sequence[int], *, piece_frames: float = math.inf
) -> list[tuple[int, int]]:
    """Split wanted frames into runs between which a decoder can seek to a keyframe.

    Positions are those in the linear decode, ascending; the first keyframe is not after the first wanted frame. Where
    GOPs follow each other without a gap, a run ends before the first that begins `piece_frames` after its own start.

    Returns the first and the last frame of each run, the first being a keyframe. That is the most to be decoded: in
    some codecs, frames on which no wanted one depends can be skipped.
    """
    spans: list[tuple[int, int]] = []
    for position in positions:
        start = keyframes[bisect_right(keyframes, position) - 1]
        if spans and start <= spans[-1][1] + 1 and start - spans[-1][0] < piece_frames:
            spans[-1] = spans[-1][0], position
        else:
            spans.append((start, position))
    return spans


def decode_gops(
    opened: Opened,
    index: VideoIndex,
    canvas: Canvas,
    reopen: Callable[[], AbstractContextManager[Opened]],
    stats: DecodeStats,
    *,
    threads: int,
    is_remote: bool,
    skip_loop_filter: bool = False,
) -> None:
    """Decode from a keyframe to each wanted frame, reading on into the next GOP or seeking past unneeded ones.

    Runs are shared among decoders, one per thread, if memory suffices and there is much to decode. If there are fewer
    runs than threads, and pictures are not tiny, each decoder decodes successive frames in several threads, which wait
    for each other more than separate decoders do. Of a remote video, `needed_ranges` were fetched before. Raises
    FallbackRequired if a GOP does not decode to the frames announced.
    """
    codec, wanted = opened[1].codec_context, canvas.wanted
    pixels, positions = codec.width * codec.height, [info.position for info in wanted]
    times, keyframes = index.pts[index.order].tolist(), index.keyframe_indices.tolist()
    spans = spans_to_decode(positions, keyframes)
    threads = threads_that_fit(threads, codec)
    if pixels * sum(last + 1 - first for first, last in spans) < LEAST_SHARED_PIXELS:
        threads = 1
    if threads > 1:
        spans = spans_to_decode(positions, keyframes, piece_frames=_PIECE_FRAMES)
    runs = [wanted[bisect_left(positions, first) : bisect_right(positions, last)] for first, last in spans]
    decoders = min(threads, len(runs))
    make_decoder = partial(
        RunDecoder,
        times=times,
        keyframes=keyframes,
        stats=stats,
        is_order_proven=index.is_order_proven,
        threads=threads // decoders if pixels >= LEAST_THREADED_PIXELS else 1,
        skip_loop_filter=skip_loop_filter,
        reads_on=not is_remote,
        stopped=canvas.stopped,
    )

    def work(video: AbstractContextManager[Opened], runs: Iterable[Sequence[FrameInfo]]) -> None:
        with video as (container, stream):
            decoder = make_decoder(container=container, stream=stream)
            for run in runs:
                for info, frame in _announced(decoder, run):
                    canvas.draw(info, frame)
                    del frame
                if canvas.stopped.is_set():
                    return

    if decoders > 1:
        others = [reopen() for _ in range(decoders - 1)]
        ordered = runs if is_remote else _in_fair_order(runs, keyframes)  # else in the order in which they arrive
        try:
            videos: list[AbstractContextManager[Opened]] = [nullcontext(opened), *others]
            canvas.share(ordered, [partial(work, video) for video in videos])
        except MemoryError:  # frames may be larger than the header states; one decoder may do
            canvas.restart()
        else:
            return
    work(nullcontext(opened), runs)


def _announced(decoder: RunDecoder, run: Sequence[FrameInfo]) -> Iterator[tuple[FrameInfo, VideoFrame]]:
    with no_other_index():
        yield from decoder.decode(run)


@contextmanager
def no_other_index() -> Iterator[None]:
    """If the block fails, require a decode from the beginning: a pass over all packets would find no more."""
    try:
        yield
    except FallbackRequired as error:
        error.linear_only = True
        raise


def _in_fair_order(runs: Sequence[Sequence[FrameInfo]], keyframes: Sequence[int]) -> Sequence[Sequence[FrameInfo]]:
    """Order runs so that all decoders end at about the same time: the first one, then the longest first."""

    def frames(run: Sequence[FrameInfo]) -> int:
        return run[-1].position - keyframes[bisect_right(keyframes, run[0].position) - 1]

    return [runs[0], *sorted(runs[1:], key=frames, reverse=True)]


def needed_ranges(index: VideoIndex, wanted: Int64s) -> list[ByteRange]:
    """Return the ranges of the packets for the wanted frames; raise FallbackRequired if there are too many."""
    if not index.size.any():  # read already
        return []
    indices = wanted.tolist()
    spans = spans_to_decode(indices, index.keyframe_indices.tolist())
    starts = [int(index.order[first]) for first, _ in spans]
    packets: list[ByteRange] = []
    for (first, last), start, following in zip(spans, starts, [*starts[1:], len(index.pts)], strict=True):
        latest = max(int(index.order[number]) for number in indices if first <= number <= last)
        packets += _located(index, start, latest)
        if following < len(index.pts) and not index.is_keyframe[latest + 1 : following].any():
            rest = _located(index, latest + 1, following - 1)  # of the GOP, if the next one is needed as well
            packets += rest if sum(packet.size for packet in rest) <= _MAX_REST_BYTES else []
    # Small gaps, such as sound between pictures, cost less than a request of their own.
    ranges = merge_ranges(sorted(packets), gap_bytes=BLOCK_BYTES)
    if len(ranges) > _MAX_RANGES:
        raise FallbackRequired("the required packets are scattered over the file")
    return ranges


def _located(index: VideoIndex, first: int, last: int) -> list[ByteRange]:
    rows = slice(first, last + 1)
    return list(map(ByteRange, index.pos[rows].tolist(), index.size[rows].tolist()))
