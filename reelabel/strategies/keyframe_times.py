"""Presentation times of all keyframes, without decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reelabel.containers.demux import open_video
from reelabel.containers.registry import probe_file
from reelabel.containers.stream_properties import StreamProperties, one_pts_to_ms, pts_to_ms
from reelabel.errors import VideoUnreadableError
from reelabel.fast_path import FastPathUnavailableError
from reelabel.strategies.linear import scan_frames
from reelabel.strategies.seek import list_packets, presentation_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import DecodeStats, FrameInfo
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
    except (FastPathUnavailableError, VideoUnreadableError):
        return None


def keyframe_times_by_packets(file: VideoFile, limits: Limits) -> KeyframeTimes | None:
    """List keyframes by demuxing all packets, as `reelabel.strategies.seek` does; None if they are not sufficient."""
    try:
        with open_video(file, limits) as (container, stream):
            times, keyframes = presentation_order(list_packets(container, stream, limits))
            return _listing(container, stream, [times[position] for position in keyframes], times[0])
    except FastPathUnavailableError:
        return None


def keyframe_times_by_decoding(file: VideoFile, limits: Limits, stats: DecodeStats) -> KeyframeTimes:
    """List keyframes by decoding the whole video: exact in any container, where packets may be flagged wrongly."""
    with open_video(file, limits) as (container, stream):
        return keyframe_times_of(container, stream, list(stats.each(scan_frames(container, stream, limits))))


def keyframe_times_of(container: InputContainer, stream: VideoStream, frames: Sequence[FrameInfo]) -> KeyframeTimes:
    """List the keyframes among all frames of a video, in the order of the decode."""
    pts = [frame.pts for frame in frames if frame.is_keyframe]
    return _listing(container, stream, pts, frames[0].pts if frames else None)


def _listing(
    container: InputContainer,
    stream: VideoStream,
    pts: Sequence[int | None] | npt.NDArray[np.int64],
    first_pts: int | None,
) -> KeyframeTimes:
    facts = StreamProperties.of(container, stream)
    return KeyframeTimes(pts_to_ms(pts, facts.time_base), facts.duration_s, one_pts_to_ms(first_pts, facts.time_base))
