"""AVI: keyframes by the index (Microsoft RIFF, with the OpenDML extensions).

AVI stores no timestamps: a frame's time is the number of its stream's chunks before it. An index that omits one
chunk is therefore wrong about every later frame, so it is checked against the chunks themselves. In a remote file,
only chunk headers that the index does not account for are read; damage to the others goes unnoticed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reelabel.containers.container_format import (
    ContainerFormat,
    KeyframePackets,
    index_of_keyframes,
    read_first_packet,
    read_up_to,
)
from reelabel.containers.demux import SILENT_CONCEALERS, check_frame_count, read_packets
from reelabel.errors import FallbackRequired
from reelabel.sources.sparse_file import ByteRange, SparseFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from av.index import IndexEntry
    from av.packet import Packet
    from av.video.stream import VideoStream

    from reelabel.containers.container_format import BinaryFile, OpenVideo
    from reelabel.index import VideoIndex

_HEADER_BYTES = 8
_LIST_HEAD_BYTES = 12
_LISTS = frozenset({b"RIFF", b"LIST"})
_DESCENDED = frozenset({b"AVI ", b"AVIX", b"movi", b"rec "})
_NON_MEDIA = frozenset({b"JUNK", b"idx1"})
_MAX_CHUNKS_BEFORE_MOVI = 100
_MAX_GAPS = 64  # in a remote file, where each costs a request
_IDX1 = np.dtype([("kind", "S4"), ("flags", "<u4"), ("at", "<u4"), ("size", "<u4")])
_FLAG_KEYFRAME = 0x10
_OPEN_SIZE = 0xFFFFFFFF  # written by muxers that cannot seek back


class _Chunk(NamedTuple):
    """A chunk header: FourCC, length of the payload, and the type of a list; empty for other chunks.

    The FourCC of a stream's chunks begins with the two digits of its number.
    """

    kind: bytes
    size_bytes: int
    form: bytes = b""

    @property
    def stream(self) -> bytes:
        return self.kind[:2]

    @property
    def total_bytes(self) -> int:
        return _HEADER_BYTES + self.size_bytes + self.size_bytes % 2

    @property
    def is_non_media(self) -> bool:
        return not self.size_bytes or self.form in _DESCENDED or self.kind in _NON_MEDIA or self.stream == b"ix"

    def is_same(self, listed: _Chunk) -> bool:
        return (self.stream, self.size_bytes) == (listed.stream, listed.size_bytes)


def _probe(file: BinaryFile, _size_bytes: int) -> bool:
    return file.read(4) == b"RIFF"


def _prepare(file: BinaryFile, _size_bytes: int) -> None:
    if _read_header(file, 0).form != b"AVI ":
        raise FallbackRequired("the container has no index in its header")
    if isinstance(file, SparseFile):
        position = _end_of_movi(file)
        file.prefetch([ByteRange(position, _read_header(file, position).total_bytes)])


def _read_keyframes(video: OpenVideo) -> tuple[VideoIndex, KeyframePackets]:
    stream, entries = video.stream, video.stream.index_entries
    check_frame_count(len(entries), video.limits)
    first = read_first_packet(read_packets(video.container, stream))
    _check_index_times(stream, first)
    _check_all_listed(video)
    keyframes = _list_keyframes(video)
    pts, pos, size = np.array([(entry.timestamp, entry.pos, entry.size) for entry in keyframes], np.int64).T

    def read_packet(number: int) -> Packet[VideoStream]:
        chunk_at, packet_bytes = int(pos[number]), int(size[number])
        if not _read_header(video.file, chunk_at).is_same(_Chunk(b"%02d" % stream.index, packet_bytes)):
            raise FallbackRequired("the index does not match the chunks")
        return video.read_packet(chunk_at + _HEADER_BYTES, packet_bytes, int(pts[number]))

    first_pts = int(pts[0]) if pos[0] == entries[0].pos else None
    columns = pts, pos, _HEADER_BYTES + size
    return (
        index_of_keyframes(video, columns, first, first_pts=first_pts, is_order_proven=True),
        KeyframePackets(first=first, read=read_packet, counts_packets=True),
    )


def _check_index_times(stream: VideoStream, first: Packet[VideoStream]) -> None:
    codec, entries = stream.codec_context, stream.index_entries
    if codec.name in SILENT_CONCEALERS:
        raise FallbackRequired("the decoder conceals damage silently")
    # MPEG-4 signals whether it reorders frames; for other codecs that can, only decoding would show it.
    if codec.codec.reorder and codec.name != "mpeg4":
        raise FallbackRequired(f"{codec.name} in AVI may reorder frames")
    if not entries or first.pos != entries[0].pos + _HEADER_BYTES:
        raise FallbackRequired("the index does not start at the first packet")
    if not first.pts == first.dts == entries[0].timestamp:
        raise FallbackRequired("presentation order differs from decode order")


def _check_all_listed(video: OpenVideo) -> None:
    stream, is_remote = video.stream, isinstance(video.file, SparseFile)
    listed = {
        entry.pos: _Chunk(b"%02d" % other.index, entry.size)
        for other in video.container.streams
        for entry in other.index_entries
    }
    times = {entry.pos: entry.timestamp for entry in stream.index_entries}
    stream_digits, frames, gaps, found = b"%02d" % stream.index, 0, 0, 0
    for position, chunk in _walk_chunks(video.file, video.size_bytes, known=listed if is_remote else {}):
        is_listed = position in listed
        if not (chunk.is_same(listed[position]) if is_listed else chunk.is_non_media):
            raise FallbackRequired("the index does not match the chunks")
        if chunk.stream == stream_digits:
            if times.get(position, frames) != frames:
                raise FallbackRequired("the index miscounts the frames")
            frames += 1
        found += is_listed
        gaps += not is_listed
        if is_remote and gaps > _MAX_GAPS:
            raise FallbackRequired("the index has too many gaps")
    if found < len(listed):
        raise FallbackRequired("the index lists chunks that do not exist")


def _list_keyframes(video: OpenVideo) -> list[IndexEntry]:
    entries = video.stream.index_entries
    keyframes = [entry for entry in entries if entry.is_keyframe]
    # Where no frame is flagged, FFmpeg flags the first.
    if not keyframes or (len(keyframes) == 1 < len(entries) and not _is_any_flagged(video)):
        raise FallbackRequired("the index lists no keyframe")
    if len(keyframes) == len(entries) > 1 and not video.stream.codec_context.codec.intra_only:
        raise FallbackRequired("every packet is flagged as a keyframe")
    return keyframes


def _is_any_flagged(video: OpenVideo) -> bool:
    """Return whether the old index flags a keyframe of the stream; true if there is no such index."""
    position = _end_of_movi(video.file)
    chunk = _read_header(video.file, position)
    if chunk.kind != b"idx1":
        return True
    video.file.seek(position + _HEADER_BYTES)
    data = read_up_to(video.file, chunk.size_bytes)
    entries = np.frombuffer(data, _IDX1, len(data) // _IDX1.itemsize)
    is_own = np.char.startswith(entries["kind"], b"%02d" % video.stream.index)
    return bool((entries["flags"][is_own] & _FLAG_KEYFRAME).any())


def _walk_chunks(file: BinaryFile, size_bytes: int, *, known: Mapping[int, _Chunk]) -> Iterator[tuple[int, _Chunk]]:
    """Yield offset and chunk, from the first one in the movi list to the end of the file, descending into lists.

    The headers of known chunks, by offset, need not be read.
    """
    position = _first_chunk(file)
    while position + _HEADER_BYTES <= size_bytes:
        chunk = known.get(position) or _read_header(file, position)
        yield position, chunk
        position += _LIST_HEAD_BYTES if chunk.form in _DESCENDED else chunk.total_bytes


def _first_chunk(file: BinaryFile) -> int:
    position = _LIST_HEAD_BYTES
    for _ in range(_MAX_CHUNKS_BEFORE_MOVI):
        chunk = _read_header(file, position)
        if chunk.form == b"movi":
            return position + _LIST_HEAD_BYTES
        position += chunk.total_bytes
    raise FallbackRequired("the AVI has no movi list")


def _end_of_movi(file: BinaryFile) -> int:
    position = _first_chunk(file) - _LIST_HEAD_BYTES
    return position + _read_header(file, position).total_bytes


def _read_header(file: BinaryFile, position: int) -> _Chunk:
    """Read a chunk header; past the end of the file, it is empty."""
    file.seek(position)
    head = read_up_to(file, _LIST_HEAD_BYTES)
    kind, size_bytes = head[:4], int.from_bytes(head[4:8], "little")
    return _Chunk(kind, size_bytes, head[8:] if kind in _LISTS else b"")


def _missing_bytes(file: BinaryFile, size_bytes: int) -> int:
    declared = _read_header(file, 0).size_bytes
    return 0 if declared == _OPEN_SIZE else max(0, _HEADER_BYTES + declared - size_bytes)


AVI = ContainerFormat(
    name="avi", probe=_probe, read_keyframes=_read_keyframes, prepare=_prepare, missing_bytes=_missing_bytes
)
