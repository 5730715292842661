"""Keyframe extraction from an AVI by its index.

AVI stores no timestamps: a frame's time is the number of its stream's chunks before it. An index that omits one
chunk is therefore wrong about every later frame, so it is checked against the chunks themselves. In a remote file,
only chunk headers that the index does not account for are read; damage to the others goes unnoticed here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import av
import av.error

from reelabel.containers.demux import check_frame_count, open_video, read_packets
from reelabel.containers.mp4_boxes import read_up_to
from reelabel.containers.riff import HEADER_BYTES, Chunk, prefetch_index, read_chunk_header, walk_chunks
from reelabel.containers.stream_properties import StreamProperties
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames
from reelabel.decode.keyframe_check import decode_single_packet, prime_mpeg4_decoder
from reelabel.fast_path import FastPathUnavailableError
from reelabel.sampled_frames import UNKNOWN_POSITION
from reelabel.sources.sparse_file import ByteRange, SparseFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.sampled_frames import SampledFrames

_MAX_GAPS = 64  # in a remote file, where each costs a request


class AviKeyframe(NamedTuple):
    """A keyframe, as listed in the index.

    Attributes:
        timestamp: Its time, in the stream's time base.
        pos: Offset of its chunk in the file.
        size_bytes: Size of its packet.
    """

    timestamp: int
    pos: int
    size_bytes: int


def extract_by_avi_index(request: ExtractionRequest, file: BinaryIO | SparseFile, size_bytes: int) -> SampledFrames:
    """Extract the picked keyframes, reading only the header, the index and their chunks.

    Args:
        request: The frames to extract.
        file: The video.
        size_bytes: Length of the file.

    Raises:
        MisledError: There is no index, or the file contradicts it.
        VideoError: As `extract_keyframes` does.
    """
    if isinstance(file, SparseFile):
        prefetch_index(file)
        file.seek(0)
    # Probed as for a linear decode: FFmpeg learns from the first frames whether they are reordered.
    with open_video(request.source, request.limits, strictly=True) as (container, stream):
        check_frame_count(len(stream.index_entries), request.limits)
        first = _first_packet(container, stream)
        keyframes = _checked_keyframes(container, stream, file, size_bytes, first=first)
        if keyframes[0].pos != stream.index_entries[0].pos and not request.segment.is_whole:
            raise FastPathUnavailableError("frames precede the first keyframe in the index")
        times = [picture.timestamp for picture in keyframes]
        chosen = request.choose(times, stream.time_base)
        picked = [keyframes[number] for number in dict.fromkeys(chosen)]
        if isinstance(file, SparseFile):
            file.index = file.extents
            file.prefetch(ByteRange(picture.pos, HEADER_BYTES + picture.size_bytes) for picture in picked)
        prime_mpeg4_decoder(stream.codec_context, first)
        return assemble_frames(
            request,
            partial(StreamProperties.of, container, stream),
            chosen=chosen,
            frames=request.tally.each(_decode_keyframes(file, stream, picked)),
            census=IndexSummary(keyframes=len(keyframes), frames=None, keyframe_pts=times, first_pts=first.pts),
            method="index",
        )


def list_avi_keyframes(
    container: InputContainer, stream: VideoStream, file: BinaryIO | SparseFile, size_bytes: int
) -> list[AviKeyframe]:
    """List the keyframes of a newly opened AVI.

    Raises:
        MisledError: There is no index, or the file contradicts it.
    """
    return _checked_keyframes(container, stream, file, size_bytes, first=_first_packet(container, stream))


def _checked_keyframes(
    container: InputContainer,
    stream: VideoStream,
    file: BinaryIO | SparseFile,
    size_bytes: int,
    *,
    first: Packet[VideoStream],
) -> list[AviKeyframe]:
    _require_index_times(stream, first)
    _require_all_listed(container, stream, file, size_bytes)
    return _indexed_keyframes(stream)


def _first_packet(container: InputContainer, stream: VideoStream) -> Packet[VideoStream]:
    try:
        return next(read_packets(container, stream))
    except (av.error.FFmpegError, StopIteration):
        raise FastPathUnavailableError("the first packet cannot be read") from None


def _require_index_times(stream: VideoStream, first: Packet[VideoStream]) -> None:
    """Check that each frame's time is the position of its packet in the file."""
    codec, entries = stream.codec_context, stream.index_entries
    # MPEG-4 signals whether it reorders frames; for other codecs that can, only decoding would show it.
    if codec.codec.reorder and codec.name != "mpeg4":
        raise FastPathUnavailableError(f"{codec.name} in AVI may reorder frames")
    if not entries or first.pos != entries[0].pos + HEADER_BYTES:
        raise FastPathUnavailableError("the index does not start at the first packet")
    if not first.pts == first.dts == entries[0].timestamp:
        raise FastPathUnavailableError("presentation order differs from decode order")


def _require_all_listed(
    container: InputContainer,
    stream: VideoStream,
    file: BinaryIO | SparseFile,
    size_bytes: int,
) -> None:
    """Walk the chunks and check the index against them."""
    listed = {
        entry.pos: Chunk(b"%02d" % other.index, entry.size)
        for other in container.streams
        for entry in other.index_entries
    }
    times = {entry.pos: entry.timestamp for entry in stream.index_entries}
    is_remote = isinstance(file, SparseFile)
    stream_digits, frames, gaps, found = b"%02d" % stream.index, 0, 0, 0
    for position, chunk in walk_chunks(file, size_bytes, known=listed if is_remote else {}):
        is_listed = position in listed
        if not (_is_same_chunk(chunk, listed[position]) if is_listed else chunk.is_non_media):
            raise FastPathUnavailableError("the index does not match the chunks")
        if chunk.stream == stream_digits:
            if times.get(position, frames) != frames:
                raise FastPathUnavailableError("the index miscounts the frames")
            frames += 1
        found += is_listed
        gaps += not is_listed
        if is_remote and gaps > _MAX_GAPS:
            raise FastPathUnavailableError("the index has too many gaps")
    if found < len(listed):
        raise FastPathUnavailableError("the index lists chunks that do not exist")


def _is_same_chunk(chunk: Chunk, listed: Chunk) -> bool:
    return (chunk.stream, chunk.size_bytes) == (listed.stream, listed.size_bytes)


def _indexed_keyframes(stream: VideoStream) -> list[AviKeyframe]:
    entries = stream.index_entries
    keyframes = [AviKeyframe(entry.timestamp, entry.pos, entry.size) for entry in entries if entry.is_keyframe]
    if not keyframes:
        raise FastPathUnavailableError("the index lists no keyframe")
    if len(keyframes) == len(entries) > 1 and not stream.codec_context.codec.intra_only:
        raise FastPathUnavailableError("every packet is flagged as a keyframe")
    return keyframes


def _decode_keyframes(
    file: BinaryIO | SparseFile,
    stream: VideoStream,
    pictures: Sequence[AviKeyframe],
) -> Iterator[tuple[FrameInfo, VideoFrame]]:
    """Decode each keyframe from its own packet."""
    for picture in pictures:
        frame = decode_single_packet(stream.codec_context, _read_packet(file, stream, picture))
        if stream.codec_context.has_b_frames:
            raise FastPathUnavailableError("presentation order differs from decode order")
        yield FrameInfo(picture.timestamp, UNKNOWN_POSITION, is_keyframe=True), frame


def _read_packet(file: BinaryIO | SparseFile, stream: VideoStream, picture: AviKeyframe) -> Packet[VideoStream]:
    """Read a keyframe's packet, after checking its chunk header against the index."""
    if not _is_same_chunk(read_chunk_header(file, picture.pos), Chunk(b"%02d" % stream.index, picture.size_bytes)):
        raise FastPathUnavailableError("the index does not match the chunks")
    file.seek(picture.pos + HEADER_BYTES)
    packet: Packet[VideoStream] = av.Packet(read_up_to(file, picture.size_bytes))  # type: ignore[assignment]
    packet.pts = packet.dts = picture.timestamp
    packet.stream, packet.is_keyframe = stream, True
    assert stream.time_base is not None
    packet.time_base = stream.time_base
    return packet
