"""Presentation times of all frames of an MP4, from its header."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av.error
import numpy as np

from infra.errors import VideoUnreadableError
from tasks.video.boxes import read_box, walk_boxes
from tasks.video.composition import read_track
from tasks.video.header import is_mp4
from tasks.video.misled import FastPathUnavailableError
from tasks.video.source import check_frame_count, open_video

if TYPE_CHECKING:
    from pathlib import Path

    from av.container import InputContainer
    from av.index import IndexEntries
    from av.video.stream import VideoStream

    from tasks.video.limits import Limits

# In these codecs, every sample is exactly one presented frame.
_CODECS = frozenset({"h264", "hevc"})
# A single edit hides frames only at the ends of the track, so those are checked.
_CHECKED_ENTRIES = 64


def read_frame_times(path: Path, limits: Limits) -> tuple[list[int], list[int]]:
    """Read from the header what `tasks.video.by_seeking.presentation_order` computes from all packets.

    Returns:
        The PTS of all frames in the stream's time base, ascending, and the positions of keyframes among them.

    Raises:
        MisledError: The header is insufficient or inconsistent.
        VideoTooLargeError: There are more frames than `limits.max_frames`.
    """
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        if not is_mp4(file, size_bytes):
            raise FastPathUnavailableError("the container has no frame times in its header")
        moov = next((read_box(file, box) for box in walk_boxes(file, size_bytes) if box.kind == b"moov"), None)
    try:
        with open_video(path, limits, quickly=True) as (container, stream):
            return _read_times(container, stream, moov, size_bytes, limits)
    except (VideoUnreadableError, av.error.FFmpegError):
        raise FastPathUnavailableError("the container cannot be opened from its header alone") from None


def _read_times(
    container: InputContainer,
    stream: VideoStream,
    moov: memoryview | None,
    size_bytes: int,
    limits: Limits,
) -> tuple[list[int], list[int]]:
    entries = stream.index_entries
    check_frame_count(len(entries), limits)
    track = read_track(moov, track_id=stream.id, samples=len(entries)) if moov is not None else None
    if stream.codec_context.name not in _CODECS or track is None or not track.is_whole:
        raise FastPathUnavailableError("the header does not give every frame's PTS")
    _require_none_hidden(entries, size_bytes)
    pts = track.times - track.times[0] + _first_pts(container, stream)
    times = np.sort(pts)
    if not track.keyframes.size or track.keyframes[0] != 0 or times[0] < pts[0] or (np.diff(times) == 0).any():
        raise FastPathUnavailableError("the header does not determine presentation order")
    return times.tolist(), np.sort(np.searchsorted(times, pts[track.keyframes])).tolist()


def _require_none_hidden(entries: IndexEntries, size_bytes: int) -> None:
    ends = (*entries[:_CHECKED_ENTRIES], *entries[-_CHECKED_ENTRIES:])
    if any(entry.is_discard for entry in ends):
        raise FastPathUnavailableError("an edit list hides frames")
    if any(entry.pos + entry.size > size_bytes for entry in ends):
        raise FastPathUnavailableError("the file ends before its last frame")


def _first_pts(container: InputContainer, stream: VideoStream) -> int:
    first = next(container.demux(stream), None)
    if first is None or first.pts is None or first.pos != stream.index_entries[0].pos:
        raise FastPathUnavailableError("the index does not start at the first packet")
    return first.pts
