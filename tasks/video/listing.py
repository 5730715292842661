"""When all keyframes of a video are shown, without decoding any."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import av.error
import numpy as np

from infra.errors import VideoUnreadableError
from tasks.video.boxes import read_box, walk_boxes
from tasks.video.by_avi_index import list_pictures
from tasks.video.by_seeking import arrange, list_packets
from tasks.video.composition import read_track
from tasks.video.header import is_mp4
from tasks.video.misled import MisledError
from tasks.video.reader import KeyframeReader
from tasks.video.riff import is_avi
from tasks.video.source import open_video
from tasks.video.stream import StreamFacts, as_ms, one_as_ms

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.stream import VideoStream

    from tasks.video.limits import Limits
    from tasks.video.ranges import SparseFile


class Listing(NamedTuple):
    """The keyframes of a video.

    Attributes:
        times_ms: When each is shown, ascending; shape (K,); None where unknown.
        duration_s: Length of the video; 0.0 where unknown.
        first_ms: When the first frame is shown, or a little before; None where unknown.
    """

    times_ms: npt.NDArray[np.int64] | None
    duration_s: float
    first_ms: int | None = None


def list_by_index(path: Path, limits: Limits) -> Listing | None:
    """List by the container's index, as `tasks.video.by_index` reads it; None where there is no such index."""
    size_bytes = path.stat().st_size
    try:
        with path.open("rb") as file:
            if is_avi(file):
                with open_video(path, limits, strictly=True) as (container, stream):
                    pictures = list_pictures(container, stream, file, size_bytes)
                    first_pts = stream.index_entries[0].timestamp
                    return _listing(container, stream, [picture.timestamp for picture in pictures], first_pts)
            with open_video(path, limits, quickly=is_mp4(file, size_bytes)) as (container, stream):
                reader = KeyframeReader(container, stream, size_bytes)
                pts = keyframe_pts(reader, file, size_bytes)
                first = first_shown(reader, pts, file, size_bytes)
                return _listing(container, stream, pts, reader.first_pts if first is None else first)
    except (MisledError, VideoUnreadableError, av.error.FFmpegError):
        return None


def list_by_packets(path: Path, limits: Limits) -> Listing | None:
    """List by all packets, as `tasks.video.by_seeking` reads them; None where these do not tell."""
    try:
        with open_video(path, limits) as (container, stream):
            times, keyframes = arrange(list_packets(container, stream, limits))
            return _listing(container, stream, [times[position] for position in keyframes], times[0])
    except MisledError:
        return None


def _listing(
    container: InputContainer, stream: VideoStream, pts: Sequence[int] | npt.NDArray[np.int64], first_pts: int
) -> Listing:
    facts = StreamFacts.of(container, stream)
    return Listing(as_ms(pts, facts.time_base), facts.duration_s, one_as_ms(first_pts, facts.time_base))


def keyframe_pts(reader: KeyframeReader, file: BinaryIO | SparseFile, size_bytes: int) -> npt.NDArray[np.int64]:
    """Give the presentation times of all keyframes that an index lists, in the stream's time base; shape (K,).

    Of an MP4, whose index holds decoding times, they are reckoned from the header's tables, or, where those do not
    tell, taken to be as far from the decoding times as the first packet's is.
    """
    listed = np.array([entry.timestamp for entry in reader.index.keyframes], np.int64)
    if not reader.is_mp4:
        return listed
    exact = tabled_pts(reader, file, size_bytes)
    return listed + reader.shift if exact is None else exact


def first_shown(
    reader: KeyframeReader, pts: npt.NDArray[np.int64], file: BinaryIO | SparseFile, size_bytes: int
) -> int | None:
    """Give when the first frame is shown, in the stream's time base; None where the index does not tell.

    Mostly that is a keyframe. But an edit list may start, or a file have been cut, between two.

    Args:
        reader: What reads the keyframes.
        pts: Their presentation times, as `keyframe_pts` gives them.
        file: The video.
        size_bytes: Its length.
    """
    if reader.begins_with_keyframe:
        return int(pts[0])
    times = _all_pts(reader, file, size_bytes) if reader.is_mp4 else None
    return None if times is None else int(times[reader.shown_first()].min())


def tabled_pts(reader: KeyframeReader, file: BinaryIO | SparseFile, size_bytes: int) -> npt.NDArray[np.int64] | None:
    """Reckon keyframes' presentation times from an MP4's tables; None where those do not tell; shape (K,)."""
    times = _all_pts(reader, file, size_bytes)
    return None if times is None else times[[entry.number for entry in reader.index.keyframes]]


def _all_pts(reader: KeyframeReader, file: BinaryIO | SparseFile, size_bytes: int) -> npt.NDArray[np.int64] | None:
    """Reckon the presentation times of all samples of an MP4, in the order in which they are decoded."""
    moov = next((read_box(file, box) for box in walk_boxes(file, size_bytes) if box.kind == b"moov"), None)
    track = read_track(moov, track_id=reader.track_id, samples=reader.samples) if moov is not None else None
    return None if track is None else track.times - track.times[0] + reader.first_pts
