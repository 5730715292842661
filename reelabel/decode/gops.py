"""Decode chosen frames, each from the keyframe before it.

The one place that turns GOPs into pixels, for files and for ranges of remote ones alike. It is given which frames a
video has; what it decodes is compared with that, and anything else than the frames announced ends the attempt.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from reelabel.decode.in_parallel import decode_in_parallel
from reelabel.decode.packet_decoder import threads_that_fit
from reelabel.decode.run_decoder import RunDecoder
from reelabel.sources.video_file import VideoFile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from contextlib import AbstractContextManager

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import ExtractionRequest, FrameInfo
    from reelabel.index import VideoIndex

    Opened = tuple[InputContainer, VideoStream]

LEAST_SHARED_PIXELS = 4 * 1024**2  # of all frames; for fewer, it does not pay to open the video again
LEAST_THREADED_PIXELS = 96 * 1024  # of a picture; a smaller one takes less time to decode than threads take to meet
_PIECE_FRAMES = 16  # to decode them takes much longer than to seek to them


def spans_to_decode(
    positions: Iterable[int], keyframes: Sequence[int], *, piece_frames: float = math.inf
) -> list[tuple[int, int]]:
    """Split wanted frames into runs between which a decoder can seek to a keyframe.

    Args:
        positions: Positions of wanted frames in the linear decode, ascending.
        keyframes: Positions of keyframes, ascending; the first is not after the first wanted frame.
        piece_frames: Where GOPs follow each other without a gap, a run ends before the first that begins so many
            frames after its own start.

    Returns:
        First and last frame of each run, the first being a keyframe. That is the most to be decoded: in some codecs,
        frames on which no wanted one depends can be skipped.
    """
    spans: list[tuple[int, int]] = []
    for position in positions:
        start = keyframes[bisect_right(keyframes, position) - 1]
        if spans and start <= spans[-1][1] + 1 and start - spans[-1][0] < piece_frames:
            spans[-1] = spans[-1][0], position
        else:
            spans.append((start, position))
    return spans


def decode_chosen(
    opened: Opened,
    chosen: Sequence[FrameInfo],
    index: VideoIndex,
    request: ExtractionRequest,
    reopen: Callable[[], AbstractContextManager[Opened]],
) -> Generator[tuple[FrameInfo, VideoFrame], None, None]:
    """Decode from a keyframe to each chosen frame, reading on into the next GOP or seeking past unneeded ones.

    Runs are shared among decoders, one for each of `request.threads`, if memory suffices and there is much to decode.
    If there are fewer runs, and pictures are not tiny, each decoder has several threads, which decode successive
    frames, and wait for each other more than decoders do.

    Args:
        opened: The video, open; of a remote one, the bytes of `spans_to_decode` are at hand.
        chosen: The wanted frames, each once, ascending.
        index: The frames of the video.
        request: What is extracted: source, limits, threads, and the statistics to keep.
        reopen: Opens the video again as it is open, for other threads.

    Yields:
        The wanted frames: the first one first, the others in any order, all of them again if memory has run out. Close
            the generator before the video.

    Raises:
        FallbackRequired: A GOP does not decode to the frames announced.
    """
    codec = opened[1].codec_context
    pixels, positions = codec.width * codec.height, [info.position for info in chosen]
    times, keyframes = index.pts[index.order].tolist(), index.keyframe_places.tolist()
    spans = spans_to_decode(positions, keyframes)
    threads = threads_that_fit(request.threads, codec)
    if pixels * sum(last + 1 - first for first, last in spans) < LEAST_SHARED_PIXELS:
        threads = 1
    if threads > 1:
        spans = spans_to_decode(positions, keyframes, piece_frames=_PIECE_FRAMES)
    runs = [chosen[bisect_left(positions, first) : bisect_right(positions, last)] for first, last in spans]
    decoders = min(threads, len(runs))
    make_decoder = partial(
        RunDecoder,
        times=times,
        keyframes=keyframes,
        is_order_proven=index.is_order_proven,
        threads=threads // decoders if pixels >= LEAST_THREADED_PIXELS else 1,
        roughly=request.roughly,
        reads_on=isinstance(request.source, VideoFile),  # which costs a request, and more, in a remote video
    )
    if decoders > 1:
        others = [reopen() for _ in range(decoders - 1)]
        videos: list[AbstractContextManager[Opened]] = [nullcontext(opened), *others]
        try:
            ordered = _in_fair_order(runs, keyframes, request)
            yield from decode_in_parallel(ordered, videos, make_decoder, request.stats)
        except MemoryError:  # frames may be larger than the header states; one decoder may do
            pass
        else:
            return
    alone = make_decoder(container=opened[0], stream=opened[1], stats=request.stats)
    for run in runs:
        yield from alone.decode(run)


def _in_fair_order(
    runs: Sequence[Sequence[FrameInfo]], keyframes: Sequence[int], request: ExtractionRequest
) -> Sequence[Sequence[FrameInfo]]:
    """Order runs so that all decoders end at about the same time: after the first, the longest ones.

    Those of a remote video stay in the order in which they arrive.
    """
    if not isinstance(request.source, VideoFile):
        return runs

    def frames(run: Sequence[FrameInfo]) -> int:
        return run[-1].position - keyframes[bisect_right(keyframes, run[0].position) - 1]

    return [runs[0], *sorted(runs[1:], key=frames, reverse=True)]
