"""The index that FFmpeg builds of a container's own, and seeks by it.

It lists DTS (MP4) or cluster offsets (Matroska), and may be wrong. So each packet is demuxed, which applies composition
offsets and edit lists to give its PTS, and compared with its entry.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import av.error
from av.stream import Discard

from reelabel.fast_path import FastPathUnavailableError, IndexMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from av.container import InputContainer
    from av.index import IndexEntries
    from av.packet import Packet
    from av.video.stream import VideoStream

    from reelabel.containers.container_index import OpenVideo

_EARLIEST = -(2**62)


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


def read_first_packet(packets: Iterator[Packet[VideoStream]]) -> Packet[VideoStream]:
    """Return the first packet of a stream.

    Raises:
        FastPathUnavailableError: There is none.
    """
    try:
        return next(packets)
    except (av.error.FFmpegError, StopIteration):
        raise FastPathUnavailableError("the first packet cannot be read") from None


def demux_only(container: InputContainer, stream: VideoStream) -> None:
    """Make the demuxer skip all streams but one."""
    for other in container.streams:
        if other is not stream:
            other.discard = Discard.all


def list_keyframes(video: OpenVideo) -> list[IndexEntry]:
    """List the presented keyframes, in decode order.

    Raises:
        FastPathUnavailableError: The index lists none, is out of order, or exceeds the file.
    """
    entries = video.stream.index_entries
    keyframes = _find_keyframes(entries)
    _require_order(entries, keyframes)
    _require_complete(video)
    return keyframes


def _find_keyframes(entries: IndexEntries) -> list[IndexEntry]:
    """Search from one keyframe to the next: an hour has 100,000 entries, each costly to access."""
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


def _require_complete(video: OpenVideo) -> None:
    """Check that no entry lies beyond the end of the file, where a linear decode would stop."""
    for stream in video.container.streams:
        entries = stream.index_entries
        if len(entries) and entries[len(entries) - 1].pos + entries[len(entries) - 1].size > video.size_bytes:
            raise FastPathUnavailableError("the file ends before its last frame")


def seek_packet(video: OpenVideo, timestamp: int) -> Packet[VideoStream]:
    """Seek backward from a PTS and demux the packet there.

    Raises:
        IndexMismatchError: There is none.
    """
    try:
        video.container.seek(timestamp, stream=video.stream, backward=True)
        return next(video.container.demux(video.stream))
    except (av.error.FFmpegError, StopIteration):
        raise IndexMismatchError("a seek failed") from None


def require_sought(packet: Packet[VideoStream], *, is_expected: bool) -> Packet[VideoStream]:
    """Return a packet that was sought, if it is the expected keyframe, in full.

    Raises:
        IndexMismatchError: It is not.
    """
    if not is_expected or not packet.is_keyframe:
        raise IndexMismatchError("a seek missed its target")
    if packet.is_corrupt or packet.pts is None:
        raise IndexMismatchError("a packet is cut short, or has no PTS")
    return packet
