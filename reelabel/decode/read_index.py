"""The header and the index of a video, read before anything is decoded."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from reelabel.containers.demux import open_video
from reelabel.containers.formats import open_by_format
from reelabel.containers.stream_properties import video_info
from reelabel.decode.packet_scan import scan_announced, scan_file
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.index import VideoIndex
from reelabel.output_order import check_forward
from reelabel.sources.sparse_file import SparseFile

if TYPE_CHECKING:
    from reelabel.index import Lists
    from reelabel.limits import Limits
    from reelabel.sources.sparse_file import CachedRange
    from reelabel.sources.video_file import VideoFile

# A file without an index is demuxed to find its frames if it is local and up to this size.
WHOLE_BYTES = 64 * 1024**2


def read_index(
    file: VideoFile | SparseFile, limits: Limits, *, lists: Lists, of_any_size: bool = False
) -> tuple[VideoIndex, tuple[CachedRange, ...]]:
    """Read the header and the index of a video; a small local file without an index is demuxed.

    Args:
        file: The video.
        limits: Limits on it.
        lists: What to list. Keyframes may remain unlisted, so that the index has no rows, and a note.
        of_any_size: Demux a large local file, too, to list its frames.

    Returns:
        The index, which the file may contradict, and of a remote video the ranges that hold its keyframes, if it lists
        them.

    Raises:
        FallbackRequired: Its frames are not listed, or only a pass over the whole file would list them.
        VideoError: As `extract_local` does, as far as the header shows.
        Exception: Whatever the source of a remote video raises.
    """
    read = partial(_read_frames, of_any_size=of_any_size) if lists == "frames" else _read_keyframes
    if not isinstance(file, SparseFile):
        return read(file, limits), ()
    with file.reading_header():
        index = read(file, limits)
    return index, file.extents if index.lists == "keyframes" and index.is_listed else ()


def list_keyframes(file: VideoFile | SparseFile, limits: Limits) -> VideoIndex | None:
    """List the keyframes by the container's index, else those of a local file by its packets; None if neither can."""
    try:
        index = keyframes_of_container(file, limits)
    except (FallbackRequired, VideoUnreadableError):
        return None if isinstance(file, SparseFile) else _scanned(file, limits)
    return index if index.is_listed else None


def keyframes_of_container(file: VideoFile | SparseFile, limits: Limits) -> VideoIndex:
    """List the keyframes by the container's index; raise FallbackRequired if it has none, or an inconsistent one."""
    with open_by_format(file, limits) as video:
        return video.read_keyframes()[0]


def _scanned(file: VideoFile, limits: Limits) -> VideoIndex | None:
    try:
        return scan_file(file, limits, all_shown=False)
    except FallbackRequired:
        return None


def _read_keyframes(file: VideoFile | SparseFile, limits: Limits) -> VideoIndex:
    try:
        return keyframes_of_container(file, limits)
    except (FallbackRequired, VideoUnreadableError) as error:
        with open_video(file, limits) as opened:
            header = VideoIndex(info=video_info(*opened), kind="container", lists="keyframes", note=str(error))
    if isinstance(file, SparseFile) or file.size_bytes > WHOLE_BYTES:
        return header
    scanned = _scanned(file, limits)
    return replace(scanned, note=header.note) if scanned else header


def _read_frames(file: VideoFile | SparseFile, limits: Limits, *, of_any_size: bool) -> VideoIndex:
    try:
        return _frames_of_container(file, limits)
    except (FallbackRequired, VideoUnreadableError):
        if isinstance(file, SparseFile):
            raise
        if file.size_bytes > WHOLE_BYTES and not of_any_size:
            raise FallbackRequired("no index lists the frames, and the file is too large to pass over") from None
    return scan_announced(file, limits)


def _frames_of_container(file: VideoFile | SparseFile, limits: Limits) -> VideoIndex:
    with open_by_format(file, limits, with_places=True) as video:
        index = video.read_frames()
    if index.doubt:
        check_forward(index.pts[index.is_shown], index.is_keyframe[index.is_shown])
    return index
