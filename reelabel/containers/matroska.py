"""Matroska and WebM: keyframes by the cues (RFC 9559), and the frames of a segment by the clusters that they bound."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import av.error
import numpy as np

from reelabel.containers.container_format import (
    ContainerFormat,
    KeyframePackets,
    check_sought,
    demux_only,
    first_output_pts,
    index_of_frames,
    index_of_keyframes,
    list_keyframes,
    read_first_packet,
    read_up_to,
    seek_packet,
)
from reelabel.containers.demux import check_frame_count, read_packets
from reelabel.containers.packet_info import PacketInfo, packet_info
from reelabel.errors import FallbackRequired
from reelabel.output_order import MAX_REORDERED
from reelabel.sources.sparse_file import ByteRange, SparseFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.packet import Packet
    from av.video.stream import VideoStream

    from reelabel.containers.container_format import BinaryFile, OpenVideo
    from reelabel.index import Int64s, VideoIndex
    from reelabel.segment import Segment

_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
_HEAD_BYTES = 4096
_LATEST = 2**62
_GUESSED_BYTES = 64 * 1024  # of a keyframe; the cues list no sizes
# Other decoders, such as MPEG-4's, also depend on packets before the keyframe.
_CODECS = frozenset({"h264", "hevc", "vp8", "vp9", "av1", "mpeg2video"})


def _probe(file: BinaryFile, _size_bytes: int) -> bool:
    return file.read(len(_EBML)) == _EBML


def _read_keyframes(video: OpenVideo) -> tuple[VideoIndex, KeyframePackets]:
    first, first_pts, pts, pos = _find_keyframes(video)

    def read_packet(number: int) -> Packet[VideoStream]:
        packet = seek_packet(video, int(pts[number]))
        return check_sought(packet, is_expected=packet.pts == pts[number])

    size = np.minimum(np.diff(pos, append=pos[-1] + _GUESSED_BYTES), _GUESSED_BYTES)
    index = index_of_keyframes(video, (pts, pos, size), first, first_pts=first_pts)
    return index, KeyframePackets(first=first, read=read_packet)


def _find_keyframes(video: OpenVideo) -> tuple[Packet[VideoStream], int | None, Int64s, Int64s]:
    _check_single_segment(video)
    demux_only(video.container, video.stream)
    packets = video.container.demux(video.stream)
    first = read_first_packet(packets)
    first_pts = first_output_pts(first, packets, video.stream.codec_context) if first.is_keyframe else None
    _load_cues(video)
    _, pts, pos, _ = np.array(list_keyframes(video), np.int64).T
    # The cues list keyframes only.
    if first.pts is None or (first.is_keyframe and first.pts != video.stream.index_entries[0].timestamp):
        raise FallbackRequired("the index does not start at the first packet")
    return first, first_pts, pts, pos


def _check_single_segment(video: OpenVideo) -> None:
    """Check that the file is complete, and that no other was appended: FFmpeg shows its frames, but reads no cues.

    If the first file was streamed, its end is not stated; one appended to it goes unnoticed.
    """
    video.file.seek(0)
    end = _segment_end(read_up_to(video.file, _HEAD_BYTES))
    if end > video.size_bytes:
        raise FallbackRequired("the file is cut short, so what is left of it must be counted")
    if not 0 < end < video.size_bytes:
        return
    video.file.seek(end)
    if read_up_to(video.file, len(_EBML)) == _EBML:
        raise FallbackRequired("another file has been appended")


def _load_cues(video: OpenVideo) -> None:
    """Make FFmpeg read the cues, which it defers until the first seek.

    A seek to the end reads on from the last cue; without cues, it indexes the whole file.
    """
    try:
        video.container.seek(_LATEST, stream=video.stream)
    except av.error.FFmpegError:
        raise FallbackRequired("a seek failed") from None


def _read_frames(video: OpenVideo, segment: Segment) -> VideoIndex:
    """List the frames of a segment, from the last cue before it to beyond its end.

    Cues list keyframes only; the number of frames in the whole video could be counted in its clusters alone.
    """
    if segment.is_whole or video.stream.codec_context.codec.canonical_name not in _CODECS:
        raise FallbackRequired("the index does not list every frame")
    _, first_pts, keyframe_pts, pos = _find_keyframes(video)
    if first_pts is None:
        raise FallbackRequired("frames precede the first keyframe in the index")
    start_pts, end_pts = segment.bounds(first_pts, video.stream.time_base)
    number, after = max(0, bisect_right(keyframe_pts, start_pts) - 1), bisect_right(keyframe_pts, end_pts)
    if number == 0 and first_pts < keyframe_pts[0]:
        raise FallbackRequired("frames precede the first keyframe")
    if isinstance(video.file, SparseFile):
        video.file.end_of_header()
        end = int(pos[after]) if after < len(pos) else video.size_bytes
        video.file.prefetch([ByteRange(int(pos[number]), end - int(pos[number]))])
    listed = list(_list_packets(video, int(keyframe_pts[number]), end_pts))
    if not {*keyframe_pts[number:after].tolist()} <= {info.pts for info in listed if info.is_keyframe}:
        raise FallbackRequired("the clusters lack a keyframe of the cues", index_is_wrong=True)
    pts, is_keyframe, is_shown = np.array(listed, np.int64).T
    columns = pts, is_keyframe.astype(np.bool_), is_shown.astype(np.bool_)
    return index_of_frames(video, columns, first_pts=first_pts, keyframe_pts=keyframe_pts, is_whole=False)


def _list_packets(video: OpenVideo, start_pts: int, end_pts: float) -> Iterator[PacketInfo]:
    allowed = MAX_REORDERED if video.stream.codec_context.codec.reorder else 0
    try:
        video.container.seek(start_pts, stream=video.stream)
        for number, packet in enumerate(read_packets(video.container, video.stream)):
            if number == 0:
                check_sought(packet, is_expected=packet.pts == start_pts)
            check_frame_count(number + 1, video.limits)
            info = packet_info(packet, video.stream)
            yield info
            allowed -= info.pts > end_pts
            if allowed < 0:
                return
    except av.error.FFmpegError:
        raise FallbackRequired("the demuxer failed") from None


def _missing_bytes(file: BinaryFile, size_bytes: int) -> int:
    return max(0, _segment_end(file.read(_HEAD_BYTES)) - size_bytes)


def _segment_end(head: bytes) -> int:
    """Return the end of the Segment element (RFC 8794, section 4.4); 0 if its size is unknown, as in live streams."""
    start = head.find(_SEGMENT)
    if start < 0 or len(head) < start + 12:
        return 0
    first = head[start + 4]
    length_bytes = 9 - first.bit_length()
    if not first:
        return 0
    size = int.from_bytes(head[start + 4 : start + 4 + length_bytes]) & ((1 << 7 * length_bytes) - 1)
    is_open = size == (1 << 7 * length_bytes) - 1
    return 0 if is_open else start + 4 + length_bytes + size


MATROSKA = ContainerFormat(
    name="matroska",
    probe=_probe,
    read_keyframes=_read_keyframes,
    read_frames=_read_frames,
    missing_bytes=_missing_bytes,
)
