"""Decode chosen frames by an index that lists every frame, reading only the index and the GOPs that hold them."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers.container_index import demux_only
from reelabel.containers.demux import open_video
from reelabel.containers.registry import probe_file
from reelabel.containers.reordering import states_reordering
from reelabel.containers.stream_properties import StreamProperties
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames
from reelabel.decode.gops import Timeline, decode_chosen, spans_to_decode
from reelabel.decode.run_decoder import MAX_PREROLL_GOPS
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.output_order import output_order
from reelabel.sampled_frames import UNKNOWN_POSITION
from reelabel.sources.sparse_file import BLOCK_BYTES, ByteRange, SparseFile
from reelabel.strategies.seek import times_of
from reelabel.strategies.timeline import choose_positions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.containers.container_index import FrameIndex, OpenVideo
    from reelabel.containers.registry import ProbedFile
    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.limits import Limits
    from reelabel.sampled_frames import SampledFrames
    from reelabel.segment import Segment
    from reelabel.strategies.keyframe_table import SavedIndex

_MAX_REST_BYTES = 128 * 1024  # that are cheaper to read than a request of their own is for what follows them
_MAX_RANGES = 512  # requests for one video; a file stored in more pieces is faster to download


class NoFrameIndexError(FallbackRequired):
    """No index of the file lists the frames among which the sampler would choose."""


def extract_by_frame_index(request: ExtractionRequest) -> tuple[SampledFrames, SavedIndex]:
    """Decode the GOPs that contain a chosen frame, each once.

    Returns:
        The frames, and the ranges of a remote file that hold its index, for later extractions.

    Raises:
        NoFrameIndexError: The container does not list the frames.
        FallbackRequired: The file contradicts its index, or most of a remote file would be read.
        VideoError: As `extract_keyframes` does.
    """
    try:
        return _extract_reading_back(request, probe_file(request.source))
    except VideoUnreadableError:
        raise NoFrameIndexError("the container cannot be opened from its header alone") from None


def _extract_reading_back(request: ExtractionRequest, probed: ProbedFile) -> tuple[SampledFrames, SavedIndex]:
    """Extract from the frames around a segment, or, if these depend on earlier ones, with the GOPs before them."""
    with _open(probed, request) as video:
        index = _read_frames(probed, video, request.segment)
        try:
            return _extract(request, probed, video, index)
        except NoFrameIndexError:
            raise
        except FallbackRequired:
            if index.is_whole or (isinstance(video.file, SparseFile) and video.file.failure):
                raise
        earlier = np.searchsorted(index.keyframe_pts, index.pts[0]) - MAX_PREROLL_GOPS
        start_pts = float(index.keyframe_pts[max(0, earlier)] - index.first_pts)
        wider = request.segment._replace(start_s=start_pts * float(video.stream.time_base or 0))
    with _open(probed, request) as video:
        return _extract(request, probed, video, _read_frames(probed, video, wider))


@contextmanager
def _open(probed: ProbedFile, request: ExtractionRequest) -> Iterator[OpenVideo]:
    """Open a video, unless its container, such as a fragmented MP4, has no index at all."""
    with ExitStack() as stack:
        try:
            video = stack.enter_context(probed.open(request.limits, strictly=True))
        except FallbackRequired as error:
            if request.fast_only and not request.segment.is_whole:
                raise  # one pass for all pieces is faster than to list all packets for each
            raise NoFrameIndexError(str(error)) from None
        yield video


def _extract(
    request: ExtractionRequest, probed: ProbedFile, video: OpenVideo, index: FrameIndex
) -> tuple[SampledFrames, SavedIndex]:
    opened = video.container, video.stream
    numbers, keyframes = list_frames(index)
    is_proven = len(index.pts) == 1 or bool((np.diff(index.pts) < 0).any())
    if not index.is_whole and not is_proven and states_reordering(video.stream.codec_context):
        raise NoFrameIndexError("the frames around the segment do not show whether timestamps are in order")
    pts = index.pts[numbers]
    times, times_s = pts.tolist(), times_of(pts, video.stream)
    first_s = float(times_of(np.array([index.first_pts]), video.stream)[0])
    choice = choose_positions(request, len(pts), times_s, video.stream, first_s=first_s)
    unique = list(dict.fromkeys(choice.positions))
    if unique[0] < keyframes[0]:  # an edit list hides the keyframe they depend on
        raise NoFrameIndexError("frames precede the first presented keyframe")
    saved: SavedIndex = ()
    if isinstance(video.file, SparseFile):
        video.file.begin_media()
        saved = video.file.index
        video.file.prefetch(_needed_ranges(index, numbers, unique, keyframes))
    infos = [
        FrameInfo(times[at], float(times_s[at]), at, is_keyframe=bool(index.is_keyframe[numbers[at]])) for at in unique
    ]
    timeline = Timeline(times, keyframes, partial(_reopen, probed, request.limits), is_proven)
    summary = IndexSummary(
        keyframes=len(index.keyframe_pts),
        frames=len(times) if index.is_whole else None,
        keyframe_s=times_of(index.keyframe_pts, video.stream),
        first_s=first_s,
        last_s=float(times_s[-1]) if index.is_whole else None,
    )
    size = (video.stream.codec_context.width, video.stream.codec_context.height)
    with closing(decode_chosen(opened, infos, timeline, request)) as frames:
        got = assemble_frames(
            request,
            partial(StreamProperties.of, *opened),
            chosen=choice.positions,
            frames=_of_size(*size, frames) if probed.container.is_header_sufficient else frames,
            in_order=infos,
            summary=summary,
            method="seek",
        )
    return choice.measured(got if index.is_whole else _without_positions(got)), saved


def _read_frames(probed: ProbedFile, video: OpenVideo, segment: Segment) -> FrameIndex:
    read = probed.container.read_frames
    if read is None:
        raise NoFrameIndexError("the container does not list every frame")
    if not video.stream.average_rate:  # which FFmpeg would guess from the first frames
        raise NoFrameIndexError("the header has no frame rate")
    try:
        with probed.guard():
            return read(video, segment)
    except FallbackRequired as error:
        raise NoFrameIndexError(str(error)) from None


def list_frames(index: FrameIndex) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Return the numbers of the shown frames in the index, by position, and the positions of keyframes among them.

    Raises:
        NoFrameIndexError: The index does not determine the order, or there is no keyframe.
    """
    try:
        first_pts = None if index.is_whole else index.first_pts
        numbers = output_order(index.pts, index.is_keyframe, index.is_shown, first_pts=first_pts)
    except FallbackRequired as error:
        raise NoFrameIndexError(str(error)) from None
    if not index.is_whole:  # the leading frames of its first keyframe are those of an earlier GOP
        numbers = numbers[index.pts[numbers] >= index.pts[0]]
    keyframes = np.flatnonzero(index.is_keyframe[numbers]).tolist()
    if not keyframes:
        raise NoFrameIndexError("no presented frame is a keyframe")
    return numbers, keyframes


def _needed_ranges(
    index: FrameIndex, numbers: npt.NDArray[np.int64], wanted: Sequence[int], keyframes: Sequence[int]
) -> list[ByteRange]:
    """Return where the packets are that a decoder needs for the wanted frames, in as few ranges as is sensible."""
    spans = spans_to_decode(wanted, keyframes)
    starts = [int(numbers[first]) for first, _ in spans]
    packets: list[ByteRange] = []
    for (first, last), start, following in zip(spans, starts, [*starts[1:], len(index.pts)], strict=True):
        latest = max(int(numbers[at]) for at in wanted if first <= at <= last)
        packets += index.locate(start, latest)
        if following < len(index.pts) and not index.is_keyframe[latest + 1 : following].any():
            rest = list(index.locate(latest + 1, following - 1))  # of the GOP, if the next one is needed as well
            packets += rest if sum(packet.size for packet in rest) <= _MAX_REST_BYTES else ()
    ranges = _bridged(packets)
    if len(ranges) > _MAX_RANGES:
        raise FallbackRequired("the required packets are scattered over the file")
    return ranges


def _bridged(packets: Iterable[ByteRange]) -> list[ByteRange]:
    """Merge ranges with small gaps, such as sound between pictures, which cost less than a request of their own."""
    ranges: list[ByteRange] = []
    for packet in sorted(packets):
        if ranges and packet.start <= ranges[-1].end + BLOCK_BYTES:
            ranges[-1] = ByteRange(ranges[-1].start, max(ranges[-1].end, packet.end) - ranges[-1].start)
        else:
            ranges.append(packet)
    return ranges


def _of_size(
    width_px: int, height_px: int, frames: Iterable[tuple[FrameInfo, VideoFrame]]
) -> Iterator[tuple[FrameInfo, VideoFrame]]:
    """Check the size in the header, by which samplers may choose, against the first frame."""
    for number, (info, frame) in enumerate(frames):
        if number == 0 and (frame.width, frame.height) != (width_px, height_px):
            raise NoFrameIndexError("the header states another frame size")
        yield info, frame


def _without_positions(got: SampledFrames) -> SampledFrames:
    return replace(got, frame_index=np.full_like(got.frame_index, UNKNOWN_POSITION))


@contextmanager
def _reopen(probed: ProbedFile, limits: Limits) -> Iterator[tuple[InputContainer, VideoStream]]:
    quickly = probed.container.is_header_sufficient
    with open_video(probed.source, limits, quickly=quickly, strictly=True) as (container, stream):
        demux_only(container, stream)
        yield container, stream
