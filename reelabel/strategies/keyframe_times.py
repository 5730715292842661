"""Presentation times of all keyframes, without decoding."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reelabel.containers.demux import open_video
from reelabel.containers.registry import probe_file
from reelabel.containers.stream_properties import StreamProperties, one_pts_to_ms, pts_to_ms, seconds_to_ms
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.strategies.linear import LinearVideo
from reelabel.strategies.seek import list_frames, list_packets

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import DecodeStats
    from reelabel.limits import Limits
    from reelabel.sources.sparse_file import SparseFile
    from reelabel.sources.video_file import VideoFile


class KeyframeTimes(NamedTuple):
    """When the keyframes of a video are presented.

    Attributes:
        times_ms: Presentation times in milliseconds, ascending; shape (K,); None if unknown.
        duration_s: Duration of the video; 0.0 if unknown.
        first_ms: Presentation time of the first frame in milliseconds, or slightly less; None if unknown.
    """

    times_ms: npt.NDArray[np.int64] | None
    duration_s: float
    first_ms: int | None = None


UNKNOWN_TIMES = KeyframeTimes(None, 0.0)


def keyframe_times_by_index(file: VideoFile | SparseFile, limits: Limits) -> KeyframeTimes | None:
    """List keyframes by the container's index, as `reelabel.strategies.index` does; None if it has no usable index."""
    try:
        probed = probe_file(file)
        with probed.open(limits) as video:
            index = probed.read_index(video)
            return _listing(video.container, video.stream, index.pts, index.earliest_pts)
    except (FallbackRequired, VideoUnreadableError):
        return None


def keyframe_times_by_packets(file: VideoFile, limits: Limits) -> KeyframeTimes | None:
    """List keyframes by demuxing all packets, as `reelabel.strategies.seek` does; None if they are not sufficient."""
    try:
        with open_video(file, limits) as (container, stream):
            pts, keyframes = list_frames(list_packets(container, stream, limits))
            return _listing(container, stream, pts[keyframes], int(pts[0]))
    except FallbackRequired:
        return None


def keyframe_times_by_decoding(file: VideoFile, limits: Limits, stats: DecodeStats) -> KeyframeTimes:
    """List keyframes by decoding the whole video: exact in any container, where packets may be flagged wrongly."""
    with closing(LinearVideo(file, limits)) as video:
        stats.frames += video.frames_decoded
        return keyframe_times_of(video)


def keyframe_times_of(video: LinearVideo) -> KeyframeTimes:
    """List the keyframes of a video that is decoded from its beginning."""
    summary = video.summary
    return KeyframeTimes(
        None if summary.keyframe_s is None else seconds_to_ms(summary.keyframe_s),
        summary.duration_s(StreamProperties.of(*video.opened)),
        None if summary.first_s is None else int(seconds_to_ms(np.array([summary.first_s]))[0]),
    )


def _listing(
    container: InputContainer,
    stream: VideoStream,
    pts: npt.NDArray[np.int64],
    first_pts: int | None,
) -> KeyframeTimes:
    facts = StreamProperties.of(container, stream)
    return KeyframeTimes(pts_to_ms(pts, facts.time_base), facts.duration_s, one_pts_to_ms(first_pts, facts.time_base))
