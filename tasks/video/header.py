"""The keyframes that a container lists in its header or its index, found without reading the rest."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import av.error

from tasks.video.boxes import walk_boxes
from tasks.video.misled import MisledError
from tasks.video.ranges import SparseFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from av.container import InputContainer
    from av.index import IndexEntries
    from av.video.stream import VideoStream

_MP4_FIRST_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"})
_MATROSKA_MAGIC = b"\x1a\x45\xdf\xa3"
_HEAD_BYTES = 16
_EARLIEST, _LATEST = -(2**62), 2**62
_MOST_ENTRIES_READ = 2000


class Entry(NamedTuple):
    """One keyframe as an index lists it.

    Attributes:
        number: Its place in the index.
        timestamp: Decoding time in MP4, presentation time in Matroska, in the stream's time base.
        pos: Where its packet begins; in Matroska, where the cluster of its packet begins.
        size: Bytes of its packet; 0 in Matroska.
    """

    number: int
    timestamp: int
    pos: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyframeIndex:
    """The keyframes of a stream that are shown, in decoding order.

    Attributes:
        keyframes: At least one.
        frames: Frames of the stream that are shown; None where the index does not tell.
        hidden_before: Frames before the first of them that an edit list hides; None where the index
            does not tell.
    """

    keyframes: Sequence[Entry]
    frames: int | None
    hidden_before: int | None


def is_mp4(file: BinaryIO | SparseFile, size_bytes: int) -> bool:
    """Tell MP4 or MOV (true) from Matroska or WebM (false), and fetch the header of a remote MP4 at once.

    Raises:
        MisledError: It is neither, or an MP4 in fragments, whose index is spread over the file.
    """
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    if head.startswith(_MATROSKA_MAGIC):
        file.seek(0)
        return False
    if head[4:8] not in _MP4_FIRST_BOXES:
        raise MisledError("its container keeps no index in its header")
    for box in walk_boxes(file, size_bytes):
        if box.kind == b"moof":
            raise MisledError("an MP4 in fragments has no one index")
        if box.kind == b"moov" and isinstance(file, SparseFile):
            file.prefetch([box.span])
    file.seek(0)
    return True


def read_index(container: InputContainer, stream: VideoStream, size_bytes: int) -> KeyframeIndex:
    """List the keyframes.

    Raises:
        MisledError: The index is missing, or cannot be true.
    """
    if container.format.name == "matroska,webm":
        _load_cues(container, stream)
    entries = stream.index_entries
    keyframes = _hop(entries)
    _require_order(entries, keyframes)
    _require_whole(container, size_bytes)
    if container.format.name == "matroska,webm":
        return KeyframeIndex(keyframes=keyframes, frames=None, hidden_before=None)
    hidden = _count_hidden(entries, keyframes)
    if len(entries) != stream.frames:
        hidden = None  # an edit list repeats or leaves out parts
    return KeyframeIndex(
        keyframes=keyframes,
        frames=None if hidden is None else len(entries) - sum(hidden),
        hidden_before=None if hidden is None else hidden[0],
    )


def _load_cues(container: InputContainer, stream: VideoStream) -> None:
    """Have FFmpeg read Matroska's cues, which it puts off until the first seek.

    A seek to the end then reads on from the last cue; without cues, it lists the whole file.
    """
    try:
        container.seek(_LATEST, stream=stream)
    except av.error.FFmpegError:
        raise MisledError("a seek ended in an error") from None


def _hop(entries: IndexEntries) -> list[Entry]:
    """Go from keyframe to keyframe: an hour has 100,000 entries, and each one looked at costs."""
    keyframes = []
    number = entries.search_timestamp(_EARLIEST, backward=False)
    while number >= 0:
        entry = entries[number]
        if entry.is_keyframe and not entry.is_discard:
            keyframes.append(Entry(number, entry.timestamp, entry.pos, entry.size))
        number = entries.search_timestamp(entry.timestamp + 1, backward=False)
    if not keyframes:
        raise MisledError("the index lists no keyframe")
    return keyframes


def _require_order(entries: IndexEntries, keyframes: Sequence[Entry]) -> None:
    """Check that the packets lie in the file as they are decoded, each GOP before the next keyframe."""
    for entry, following in pairwise(keyframes):
        last = entries[following.number - 1]
        if not entry.number < following.number or not entry.pos <= last.pos <= last.pos + last.size <= following.pos:
            raise MisledError("the index is out of order")


def _require_whole(container: InputContainer, size_bytes: int) -> None:
    """Check that nothing is listed behind the file's end, where a linear decode would stop."""
    for stream in container.streams:
        entries = stream.index_entries
        if len(entries) and entries[len(entries) - 1].pos + entries[len(entries) - 1].size > size_bytes:
            raise MisledError("the file ends before its last frame")


def _count_hidden(entries: IndexEntries, keyframes: Sequence[Entry]) -> tuple[int, int] | None:
    """Count the frames that an edit list hides before the first keyframe and after the last; None where unknown."""
    first, last = keyframes[0].number, keyframes[-1].number
    second = keyframes[1].number if len(keyframes) > 1 else first + 1
    if max(second, len(entries) - last) > _MOST_ENTRIES_READ or _hidden(entries, first, second):
        return None
    if not entries[0].is_keyframe:
        return None  # what comes before the first keyframe may or may not be shown
    return _hidden(entries, 0, first), _hidden(entries, last, len(entries))


def _hidden(entries: IndexEntries, start: int, stop: int) -> int:
    return sum(entry.is_discard for entry in entries[start:stop])
