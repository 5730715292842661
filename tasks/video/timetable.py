"""When every frame of an MP4 is shown, by its header alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av.error
import numpy as np

from infra.errors import VideoUnreadableError
from tasks.video.boxes import read_box, walk_boxes
from tasks.video.composition import read_track
from tasks.video.header import is_mp4
from tasks.video.misled import MisledError
from tasks.video.source import check_count, open_video

if TYPE_CHECKING:
    from pathlib import Path

    from av.container import InputContainer
    from av.index import IndexEntries
    from av.video.stream import VideoStream

    from tasks.video.limits import Limits

# Of these, every sample is one frame that is shown.
_CODECS = frozenset({"h264", "hevc"})
# One edit hides frames at its ends alone, and those are few where it hides none in between.
_LOOKED_AT = 64


def read_timetable(path: Path, limits: Limits) -> tuple[list[int], list[int]]:
    """Read what `tasks.video.by_seeking.arrange` learns from all packets.

    Returns:
        Presentation times in the stream's time base, ascending, and the positions of keyframes in them.

    Raises:
        MisledError: The header does not tell, or cannot be true.
        VideoTooLargeError: There are more frames than `limits.max_frames`.
    """
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        if not is_mp4(file, size_bytes):
            raise MisledError("its container keeps no times in its header")
        moov = next((read_box(file, box) for box in walk_boxes(file, size_bytes) if box.kind == b"moov"), None)
    try:
        with open_video(path, limits, quickly=True) as (container, stream):
            return _arranged(container, stream, moov, size_bytes, limits)
    except (VideoUnreadableError, av.error.FFmpegError):
        raise MisledError("it does not open by its header alone") from None


def _arranged(
    container: InputContainer,
    stream: VideoStream,
    moov: memoryview | None,
    size_bytes: int,
    limits: Limits,
) -> tuple[list[int], list[int]]:
    entries = stream.index_entries
    check_count(len(entries), limits)
    track = read_track(moov, track_id=stream.id, samples=len(entries)) if moov is not None else None
    if stream.codec_context.name not in _CODECS or track is None or not track.is_whole:
        raise MisledError("the header does not tell every frame's time")
    _require_shown(entries, size_bytes)
    pts = track.times - track.times[0] + _first_pts(container, stream)
    times = np.sort(pts)
    if not track.keyframes.size or track.keyframes[0] != 0 or times[0] < pts[0] or (np.diff(times) == 0).any():
        raise MisledError("the header's times do not tell the order")
    return times.tolist(), np.sort(np.searchsorted(times, pts[track.keyframes])).tolist()


def _require_shown(entries: IndexEntries, size_bytes: int) -> None:
    ends = (*entries[:_LOOKED_AT], *entries[-_LOOKED_AT:])
    if any(entry.is_discard for entry in ends):
        raise MisledError("an edit list hides frames")
    if any(entry.pos + entry.size > size_bytes for entry in ends):
        raise MisledError("the file ends before its last frame")


def _first_pts(container: InputContainer, stream: VideoStream) -> int:
    first = next(container.demux(stream), None)
    if first is None or first.pts is None or first.pos != stream.index_entries[0].pos:
        raise MisledError("the index does not begin with the first packet")
    return first.pts
