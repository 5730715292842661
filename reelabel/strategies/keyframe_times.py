"""Presentation times of all keyframes, without decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import av.error
import numpy as np

from reelabel.containers.container_index import is_mp4
from reelabel.containers.demux import open_video
from reelabel.containers.mp4_boxes import read_box, walk_boxes
from reelabel.containers.mp4_sample_table import read_track
from reelabel.containers.riff import is_avi
from reelabel.containers.stream_properties import StreamProperties, one_pts_to_ms, pts_to_ms
from reelabel.errors import VideoUnreadableError
from reelabel.fast_path import FastPathUnavailableError
from reelabel.strategies.avi_index import list_avi_keyframes
from reelabel.strategies.keyframe_reader import KeyframeReader
from reelabel.strategies.seek import list_packets, presentation_order

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.stream import VideoStream

    from reelabel.limits import Limits
    from reelabel.sources.sparse_file import SparseFile


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


def keyframe_times_by_index(path: Path, limits: Limits) -> KeyframeTimes | None:
    """List keyframes by the container's index, as `reelabel.strategies.index` does; None if it has no usable index."""
    size_bytes = path.stat().st_size
    try:
        with path.open("rb") as file:
            if is_avi(file):
                with open_video(path, limits, strictly=True) as (container, stream):
                    pictures = list_avi_keyframes(container, stream, file, size_bytes)
                    first_pts = stream.index_entries[0].timestamp
                    return _listing(container, stream, [picture.timestamp for picture in pictures], first_pts)
            with open_video(path, limits, quickly=is_mp4(file, size_bytes)) as (container, stream):
                reader = KeyframeReader(container, stream, size_bytes)
                pts = keyframe_pts(reader, file, size_bytes)
                first = first_presented_pts(reader, pts, file, size_bytes)
                return _listing(container, stream, pts, reader.first_pts if first is None else first)
    except (FastPathUnavailableError, VideoUnreadableError, av.error.FFmpegError):
        return None


def keyframe_times_by_packets(path: Path, limits: Limits) -> KeyframeTimes | None:
    """List keyframes by demuxing all packets, as `reelabel.strategies.seek` does; None if they are not sufficient."""
    try:
        with open_video(path, limits) as (container, stream):
            times, keyframes = presentation_order(list_packets(container, stream, limits))
            return _listing(container, stream, [times[position] for position in keyframes], times[0])
    except FastPathUnavailableError:
        return None


def _listing(
    container: InputContainer, stream: VideoStream, pts: Sequence[int] | npt.NDArray[np.int64], first_pts: int
) -> KeyframeTimes:
    facts = StreamProperties.of(container, stream)
    return KeyframeTimes(pts_to_ms(pts, facts.time_base), facts.duration_s, one_pts_to_ms(first_pts, facts.time_base))


def keyframe_pts(reader: KeyframeReader, file: BinaryIO | SparseFile, size_bytes: int) -> npt.NDArray[np.int64]:
    """Return the PTS of all keyframes in an index, in the stream's time base; shape (K,).

    The index of an MP4 holds DTS. There, PTS are computed from the sample tables; if those are unusable, the first
    packet's difference between PTS and DTS is assumed for all.
    """
    listed = np.array([entry.timestamp for entry in reader.index.keyframes], np.int64)
    if not reader.is_mp4:
        return listed
    exact = sample_table_pts(reader, file, size_bytes)
    return listed + reader.shift if exact is None else exact


def first_presented_pts(
    reader: KeyframeReader, pts: npt.NDArray[np.int64], file: BinaryIO | SparseFile, size_bytes: int
) -> int | None:
    """Return the PTS of the first presented frame, in the stream's time base; None if the index does not tell.

    Usually that is a keyframe, but an edit list may start, or the file may have been cut, between two keyframes.

    Args:
        reader: The open stream's keyframe reader.
        pts: The keyframes' PTS, as returned by `keyframe_pts`.
        file: The video.
        size_bytes: Length of the file.
    """
    if reader.begins_with_keyframe:
        return int(pts[0])
    times = _sample_pts(reader, file, size_bytes) if reader.is_mp4 else None
    return None if times is None else int(times[reader.presented_before_second_keyframe()].min())


def sample_table_pts(
    reader: KeyframeReader, file: BinaryIO | SparseFile, size_bytes: int
) -> npt.NDArray[np.int64] | None:
    """Compute the keyframes' PTS from an MP4's sample tables; shape (K,). None if those are unusable."""
    times = _sample_pts(reader, file, size_bytes)
    return None if times is None else times[[entry.number for entry in reader.index.keyframes]]


def _sample_pts(reader: KeyframeReader, file: BinaryIO | SparseFile, size_bytes: int) -> npt.NDArray[np.int64] | None:
    """Compute the PTS of all samples of an MP4, in decode order. None if the sample tables are unusable."""
    moov = next((read_box(file, box) for box in walk_boxes(file, size_bytes) if box.kind == b"moov"), None)
    track = read_track(moov, track_id=reader.track_id, samples=reader.samples) if moov is not None else None
    return None if track is None else track.times - track.times[0] + reader.first_pts
