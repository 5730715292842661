"""Keyframes of an AVI by its index.

An AVI holds no times: a frame's is the number of chunks before it. So an index that leaves one out is
wrong about all that follow, and is held against the chunks themselves. In a remote file only those
heads are read that the index does not account for: what damage did to the others stays unknown.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import av
import av.error

from tasks.video.boxes import read_up_to
from tasks.video.keyframes import UNKNOWN_POSITION
from tasks.video.misled import MisledError
from tasks.video.proof import decode_alone, prime
from tasks.video.ranges import Span, SparseFile
from tasks.video.riff import HEAD_BYTES, Chunk, prefetch_index, read_head, walk_chunks
from tasks.video.shots import Census, Sight, shoot
from tasks.video.source import check_count, open_video, read_packets
from tasks.video.stream import StreamFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from tasks.video.keyframes import Keyframes
    from tasks.video.shots import Request

_MOST_GAPS = 64  # of a remote file: each costs a request


class Picture(NamedTuple):
    """A keyframe as the index lists it.

    Attributes:
        timestamp: Its time in the stream's time base.
        pos: Where its chunk begins.
        size_bytes: Bytes of its packet.
    """

    timestamp: int
    pos: int
    size_bytes: int


def extract_by_avi_index(request: Request, file: BinaryIO | SparseFile, size_bytes: int) -> Keyframes:
    """Read the header, the index and the picked keyframes' chunks.

    Args:
        request: What is wanted.
        file: The video.
        size_bytes: Its length.

    Raises:
        MisledError: There is no index, or something contradicts it.
        VideoError: As `extract_keyframes` does.
    """
    if isinstance(file, SparseFile):
        prefetch_index(file)
        file.seek(0)
    # Opened as for a linear decode: whether frames are reordered, FFmpeg learns from the first of them.
    with open_video(request.source, request.limits, strictly=True) as (container, stream):
        check_count(len(stream.index_entries), request.limits)
        first = _first_packet(container, stream)
        keyframes = _list_pictures(container, stream, file, size_bytes, first=first)
        if keyframes[0].pos != stream.index_entries[0].pos and not request.segment.is_whole:
            raise MisledError("frames stand before the first keyframe of the index")
        times = [picture.timestamp for picture in keyframes]
        chosen = request.choose(times, stream.time_base)
        picked = [keyframes[number] for number in dict.fromkeys(chosen)]
        if isinstance(file, SparseFile):
            file.index = file.extents
            file.prefetch(Span(picture.pos, HEAD_BYTES + picture.size_bytes) for picture in picked)
        prime(stream.codec_context, first)
        return shoot(
            request,
            partial(StreamFacts.of, container, stream),
            chosen=chosen,
            frames=request.tally.each(_read(file, stream, picked)),
            census=Census(keyframes=len(keyframes), frames=None, keyframe_pts=times, first_pts=first.pts),
            method="index",
        )


def list_pictures(
    container: InputContainer, stream: VideoStream, file: BinaryIO | SparseFile, size_bytes: int
) -> list[Picture]:
    """List the keyframes of an AVI that was just opened.

    Raises:
        MisledError: There is no index, or something contradicts it.
    """
    return _list_pictures(container, stream, file, size_bytes, first=_first_packet(container, stream))


def _list_pictures(
    container: InputContainer,
    stream: VideoStream,
    file: BinaryIO | SparseFile,
    size_bytes: int,
    *,
    first: Packet[VideoStream],
) -> list[Picture]:
    _require_times(stream, first)
    _require_all_listed(container, stream, file, size_bytes)
    return _keyframes(stream)


def _first_packet(container: InputContainer, stream: VideoStream) -> Packet[VideoStream]:
    try:
        return next(read_packets(container, stream))
    except (av.error.FFmpegError, StopIteration):
        raise MisledError("the first packet cannot be read") from None


def _require_times(stream: VideoStream, first: Packet[VideoStream]) -> None:
    """Check that a frame's time is its packet's place in the file."""
    codec, entries = stream.codec_context, stream.index_entries
    # MPEG-4 says whether it reorders; of the others that may, only a decode would tell.
    if codec.codec.reorder and codec.name != "mpeg4":
        raise MisledError(f"{codec.name} in AVI may show its frames in another order")
    if not entries or first.pos != entries[0].pos + HEAD_BYTES:
        raise MisledError("the index does not begin with the first packet")
    if not first.pts == first.dts == entries[0].timestamp:
        raise MisledError("frames are shown later than their packets come")


def _require_all_listed(
    container: InputContainer,
    stream: VideoStream,
    file: BinaryIO | SparseFile,
    size_bytes: int,
) -> None:
    """Walk from chunk to chunk and hold the index against what lies there."""
    listed = {
        entry.pos: Chunk(b"%02d" % other.index, entry.size)
        for other in container.streams
        for entry in other.index_entries
    }
    times = {entry.pos: entry.timestamp for entry in stream.index_entries}
    is_remote = isinstance(file, SparseFile)
    digits, frames, gaps, found = b"%02d" % stream.index, 0, 0, 0
    for position, chunk in walk_chunks(file, size_bytes, known=listed if is_remote else {}):
        is_listed = position in listed
        if not (_is_same(chunk, listed[position]) if is_listed else chunk.is_filling):
            raise MisledError("the index is not that of the chunks")
        if chunk.stream == digits:
            if times.get(position, frames) != frames:
                raise MisledError("the index counts other frames than there are")
            frames += 1
        found += is_listed
        gaps += not is_listed
        if is_remote and gaps > _MOST_GAPS:
            raise MisledError("the index leaves too many gaps")
    if found < len(listed):
        raise MisledError("the index lists what is not there")


def _is_same(chunk: Chunk, listed: Chunk) -> bool:
    return (chunk.stream, chunk.size_bytes) == (listed.stream, listed.size_bytes)


def _keyframes(stream: VideoStream) -> list[Picture]:
    entries = stream.index_entries
    keyframes = [Picture(entry.timestamp, entry.pos, entry.size) for entry in entries if entry.is_keyframe]
    if not keyframes:
        raise MisledError("the index lists no keyframe")
    if len(keyframes) == len(entries) > 1 and not stream.codec_context.codec.intra_only:
        raise MisledError("every packet is flagged as a keyframe")
    return keyframes


def _read(
    file: BinaryIO | SparseFile,
    stream: VideoStream,
    pictures: Sequence[Picture],
) -> Iterator[tuple[Sight, VideoFrame]]:
    """Decode keyframes, each from its packet alone."""
    for picture in pictures:
        frame = decode_alone(stream.codec_context, _packet(file, stream, picture))
        if stream.codec_context.has_b_frames:
            raise MisledError("frames are shown later than their packets come")
        yield Sight(picture.timestamp, UNKNOWN_POSITION, is_keyframe=True), frame


def _packet(file: BinaryIO | SparseFile, stream: VideoStream, picture: Picture) -> Packet[VideoStream]:
    """Read a keyframe's packet; its head has the last word on what it is."""
    if not _is_same(read_head(file, picture.pos), Chunk(b"%02d" % stream.index, picture.size_bytes)):
        raise MisledError("the index is not that of the chunks")
    file.seek(picture.pos + HEAD_BYTES)
    packet: Packet[VideoStream] = av.Packet(read_up_to(file, picture.size_bytes))  # type: ignore[assignment]
    packet.pts = packet.dts = picture.timestamp
    packet.stream, packet.is_keyframe = stream, True
    assert stream.time_base is not None
    packet.time_base = stream.time_base
    return packet
