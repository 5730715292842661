"""Decode frames anywhere on the timeline, each from the keyframe before it.

Frames are listed by the container's index where it has one of frames; the file is then read at the GOPs needed only.
Otherwise, all packets of a local file are listed.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers.container_format import demux_only
from reelabel.containers.demux import open_video
from reelabel.containers.formats import probe_file
from reelabel.containers.stream_properties import video_info
from reelabel.decode.assemble import assemble_frames, frames_of
from reelabel.decode.gops import decode_chosen, spans_to_decode
from reelabel.decode.packet_scan import scan_file
from reelabel.decode.run_decoder import MAX_PREROLL_GOPS
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.sources.sparse_file import BLOCK_BYTES, ByteRange, SparseFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.containers.container_format import OpenVideo
    from reelabel.containers.formats import ProbedFile
    from reelabel.decode.assemble import ExtractionRequest, FrameInfo
    from reelabel.index import Int64s, VideoIndex
    from reelabel.limits import Limits
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.choose import Chosen
    from reelabel.segment import Segment
    from reelabel.strategies.keyframe_table import SavedIndex

    Opened = tuple[InputContainer, VideoStream]

_MAX_REST_BYTES = 128 * 1024  # that are cheaper to read than a request of their own is for what follows them
_MAX_RANGES = 512  # requests for one video; a file stored in more pieces is faster to download


def extract_by_packet_scan(request: ExtractionRequest) -> SampledFrames:
    """Demux all packets of a local file, and decode the GOPs that contain a chosen frame, each once.

    Raises:
        FallbackRequired: The packets are not sufficient, or a GOP does not decode to the frames they announce.
        VideoError: As `extract_local` does.
    """
    if request.every:
        raise FallbackRequired("all keyframes were requested")
    index = scan_file(request.source, request.limits, all_shown=True)
    chosen = _choose(request, index)
    # Reopened: demuxing to the end may have left state behind that a fresh demuxer would not have.
    reopen = partial(open_video, request.source, request.limits, strictly=True)
    with reopen() as opened:
        return _decode(request, index, chosen, opened, reopen)


def extract_by_frame_index(request: ExtractionRequest) -> tuple[SampledFrames, SavedIndex]:
    """Decode the GOPs that contain a chosen frame, each once, by an index that lists every frame.

    Returns:
        The frames, and the ranges of a remote file that hold its index, for later extractions.

    Raises:
        FallbackRequired: The container does not list the frames; or the file contradicts its index, or most of a remote
            file would be read, so that only a linear decode is left.
        VideoError: As `extract_local` does.
    """
    with _no_other_index():
        probed = probe_file(request.source)
    try:
        return _extract_reading_back(request, probed)
    except VideoUnreadableError:
        raise FallbackRequired("the container cannot be opened from its header alone") from None


def _extract_reading_back(request: ExtractionRequest, probed: ProbedFile) -> tuple[SampledFrames, SavedIndex]:
    """Extract from the frames around a segment, or, if these depend on earlier ones, with the GOPs before them."""
    with _open(probed, request) as video:
        index = _read_frames(probed, video, request.segment)
        try:
            return _extract(request, probed, video, index)
        except FallbackRequired as error:
            has_failed = isinstance(video.file, SparseFile) and video.file.failure
            if not error.linear_only or index.is_whole or has_failed:
                raise
    assert index.keyframe_s is not None
    assert index.first_s is not None
    first_s = float(index.pts[0] * float(index.info.time_base))
    earlier = max(0, int(np.searchsorted(index.keyframe_s, first_s)) - MAX_PREROLL_GOPS)
    wider = request.segment._replace(start_s=float(index.keyframe_s[earlier] - index.first_s))
    with _open(probed, request) as video:
        return _extract(request, probed, video, _read_frames(probed, video, wider))


@contextmanager
def _open(probed: ProbedFile, request: ExtractionRequest) -> Iterator[OpenVideo]:
    """Open a video, unless its container, such as a fragmented MP4, has no index at all."""
    with ExitStack() as stack:
        try:
            video = stack.enter_context(
                probed.open(request.limits, strictly=True, with_places=isinstance(request.source, SparseFile))
            )
        except FallbackRequired as error:
            # One pass for all pieces is faster than to list all packets for each.
            error.linear_only = request.fast_only and not request.segment.is_whole
            raise
        yield video


@contextmanager
def _no_other_index() -> Iterator[None]:
    """Have the video decoded from its beginning if the block fails: a pass over all packets would find no more."""
    try:
        yield
    except FallbackRequired as error:
        error.linear_only = True
        raise


def _read_frames(probed: ProbedFile, video: OpenVideo, segment: Segment) -> VideoIndex:
    if not video.stream.average_rate:  # which FFmpeg would guess from the first frames
        raise FallbackRequired("the header has no frame rate")
    return probed.read_frames(video, segment)


def _extract(
    request: ExtractionRequest, probed: ProbedFile, video: OpenVideo, index: VideoIndex
) -> tuple[SampledFrames, SavedIndex]:
    chosen = _choose(request, index)
    opened = video.container, video.stream
    saved: SavedIndex = ()
    if isinstance(video.file, SparseFile):
        video.file.end_of_header()
        saved = video.file.index
        with _no_other_index():
            video.file.prefetch(_needed_ranges(index, chosen.unique))
    size = opened[1].codec_context.width, opened[1].codec_context.height
    reopen = partial(_reopen, probed, request.limits)
    return _decode(
        request, index, chosen, opened, reopen, size if probed.container.is_header_sufficient else None
    ), saved


def _choose(request: ExtractionRequest, index: VideoIndex) -> Chosen:
    if index.doubt:
        raise FallbackRequired(index.doubt)
    chosen = request.choose(index)
    if chosen.unique[0] < index.keyframe_places[0]:  # an edit list hides the keyframe they depend on
        raise FallbackRequired("frames precede the first presented keyframe")
    return chosen


def _decode(
    request: ExtractionRequest,
    index: VideoIndex,
    chosen: Chosen,
    opened: Opened,
    reopen: Callable[[], AbstractContextManager[Opened]],
    size: tuple[int, int] | None = None,
) -> SampledFrames:
    """Decode chosen frames; the first must have the size that a header states, if that is given."""
    wanted = frames_of(index, chosen.unique)
    with closing(decode_chosen(opened, wanted, index, request, reopen)) as decoded:
        frames = _announced(decoded)
        return assemble_frames(
            request,
            partial(video_info, *opened),
            index=index,
            chosen=chosen,
            wanted=wanted,
            frames=_of_size(*size, frames) if size else frames,
            method="seek",
        )


def _announced(frames: Iterable[tuple[FrameInfo, VideoFrame]]) -> Iterator[tuple[FrameInfo, VideoFrame]]:
    with _no_other_index():
        yield from frames


def _needed_ranges(index: VideoIndex, wanted: Int64s) -> list[ByteRange]:
    """Return where the packets are that a decoder needs for the wanted frames, in as few ranges as is sensible."""
    if not index.size.any():  # read already
        return []
    places = wanted.tolist()
    spans = spans_to_decode(places, index.keyframe_places.tolist())
    starts = [int(index.order[first]) for first, _ in spans]
    packets: list[ByteRange] = []
    for (first, last), start, following in zip(spans, starts, [*starts[1:], len(index.pts)], strict=True):
        latest = max(int(index.order[place]) for place in places if first <= place <= last)
        packets += _located(index, start, latest)
        if following < len(index.pts) and not index.is_keyframe[latest + 1 : following].any():
            rest = _located(index, latest + 1, following - 1)  # of the GOP, if the next one is needed as well
            packets += rest if sum(packet.size for packet in rest) <= _MAX_REST_BYTES else []
    ranges = _bridged(packets)
    if len(ranges) > _MAX_RANGES:
        raise FallbackRequired("the required packets are scattered over the file")
    return ranges


def _located(index: VideoIndex, first: int, last: int) -> list[ByteRange]:
    rows = slice(first, last + 1)
    return list(map(ByteRange, index.pos[rows].tolist(), index.size[rows].tolist()))


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
            raise FallbackRequired("the header states another frame size")
        yield info, frame


@contextmanager
def _reopen(probed: ProbedFile, limits: Limits) -> Iterator[tuple[InputContainer, VideoStream]]:
    quickly = probed.container.is_header_sufficient
    with open_video(probed.source, limits, quickly=quickly, strictly=True) as (container, stream):
        demux_only(container, stream)
        yield container, stream
