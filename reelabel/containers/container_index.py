"""Keyframes from a container's header or index, without reading the media data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import av.error

from reelabel.containers.mp4_boxes import walk_boxes
from reelabel.fast_path import FastPathUnavailableError
from reelabel.sources.sparse_file import SparseFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from av.container import InputContainer
    from av.index import IndexEntries
    from av.video.stream import VideoStream

_MP4_FIRST_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"})
_MATROSKA_MAGIC = b"\x1a\x45\xdf\xa3"
_MAGIC_BYTES = 16
_EARLIEST, _LATEST = -(2**62), 2**62
_MAX_ENTRIES_READ = 2000


class IndexEntry(NamedTuple):
    """A keyframe, as listed in an index.

    Attributes:
        number: Its position in the index.
        timestamp: DTS in MP4, PTS in Matroska, in the stream's time base.
        pos: Offset of its packet in the file; in Matroska, of the cluster that contains it.
        size: Size of its packet in bytes; 0 in Matroska.
    """

    number: int
    timestamp: int
    pos: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyframeIndex:
    """The presented keyframes of a stream, in decode order.

    Attributes:
        keyframes: The keyframes, at least one.
        frames: Number of presented frames in the stream; None if unknown.
        hidden_before: Number of frames before the first keyframe that an edit list hides; None if unknown.
    """

    keyframes: Sequence[IndexEntry]
    frames: int | None
    hidden_before: int | None


def is_mp4(file: BinaryIO | SparseFile, size_bytes: int) -> bool:
    """Return whether a file is MP4 or MOV (true), or Matroska or WebM (false).

    The header of a remote MP4 is fetched in one request on the way.

    Raises:
        MisledError: The file is neither, or is a fragmented MP4, whose index is spread over the file.
    """
    file.seek(0)
    head = file.read(_MAGIC_BYTES)
    if head.startswith(_MATROSKA_MAGIC):
        file.seek(0)
        return False
    if head[4:8] not in _MP4_FIRST_BOXES:
        raise FastPathUnavailableError("the container has no index in its header")
    for box in walk_boxes(file, size_bytes):
        if box.kind == b"moof":
            raise FastPathUnavailableError("a fragmented MP4 has no single index")
        if box.kind == b"moov" and isinstance(file, SparseFile):
            file.prefetch([box.span])
    file.seek(0)
    return True


def read_index(container: InputContainer, stream: VideoStream, size_bytes: int) -> KeyframeIndex:
    """Read a container's keyframe index.

    Raises:
        MisledError: The index is missing or inconsistent.
    """
    if container.format.name == "matroska,webm":
        _load_cues(container, stream)
    entries = stream.index_entries
    keyframes = _list_keyframes(entries)
    _require_order(entries, keyframes)
    _require_complete(container, size_bytes)
    if container.format.name == "matroska,webm":
        return KeyframeIndex(keyframes=keyframes, frames=None, hidden_before=None)
    hidden = _count_hidden(entries, keyframes)
    if len(entries) != stream.frames:
        hidden = None  # an edit list repeats or omits parts
    return KeyframeIndex(
        keyframes=keyframes,
        frames=None if hidden is None else len(entries) - sum(hidden),
        hidden_before=None if hidden is None else hidden[0],
    )


def _load_cues(container: InputContainer, stream: VideoStream) -> None:
    """Make FFmpeg read Matroska's cues, which it defers until the first seek.

    A seek to the end reads on from the last cue; without cues, it indexes the whole file.
    """
    try:
        container.seek(_LATEST, stream=stream)
    except av.error.FFmpegError:
        raise FastPathUnavailableError("a seek failed") from None


def _list_keyframes(entries: IndexEntries) -> list[IndexEntry]:
    """List keyframes by searching from one to the next: an hour has 100,000 entries, each costly to access."""
    keyframes = []
    number = entries.search_timestamp(_EARLIEST, backward=False)
    while number >= 0:
        entry = entries[number]
        if entry.is_keyframe and not entry.is_discard:
            keyframes.append(IndexEntry(number, entry.timestamp, entry.pos, entry.size))
        number = entries.search_timestamp(entry.timestamp + 1, backward=False)
    if not keyframes:
        raise FastPathUnavailableError("the index lists no keyframe")
    return keyframes


def _require_order(entries: IndexEntries, keyframes: Sequence[IndexEntry]) -> None:
    """Check that packets are stored in decode order, each GOP before the next keyframe."""
    for entry, following in pairwise(keyframes):
        last = entries[following.number - 1]
        if not entry.number < following.number or not entry.pos <= last.pos <= last.pos + last.size <= following.pos:
            raise FastPathUnavailableError("the index is out of order")


def _require_complete(container: InputContainer, size_bytes: int) -> None:
    """Check that no entry lies beyond the end of the file, where a linear decode would stop."""
    for stream in container.streams:
        entries = stream.index_entries
        if len(entries) and entries[len(entries) - 1].pos + entries[len(entries) - 1].size > size_bytes:
            raise FastPathUnavailableError("the file ends before its last frame")


def _count_hidden(entries: IndexEntries, keyframes: Sequence[IndexEntry]) -> tuple[int, int] | None:
    """Count the frames that an edit list hides before the first keyframe and after the last; None if unknown."""
    first, last = keyframes[0].number, keyframes[-1].number
    second = keyframes[1].number if len(keyframes) > 1 else first + 1
    if max(second, len(entries) - last) > _MAX_ENTRIES_READ or _count_discarded(entries, first, second):
        return None
    if not entries[0].is_keyframe:
        return None  # frames before the first keyframe may or may not be decoded
    return _count_discarded(entries, 0, first), _count_discarded(entries, last, len(entries))


def _count_discarded(entries: IndexEntries, start: int, stop: int) -> int:
    return sum(entry.is_discard for entry in entries[start:stop])
