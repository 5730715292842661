"""Video indexes that are read without decoding: from the container's index, or from the packets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import av.error
import numpy as np

from reelabel.containers.container_format import NO_TIME_BASE
from reelabel.containers.demux import check_frame_count, open_video, read_packets
from reelabel.containers.formats import open_by_format
from reelabel.containers.packet_info import (
    check_no_palette,
    check_shown_in_turn,
    ends_sequence,
    is_shown_early,
    is_splice_point,
    packet_info,
    sequence_header,
)
from reelabel.containers.stream_properties import header_info
from reelabel.decode.packets import is_flagged_wrongly
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.index import Lists, VideoIndex
from reelabel.output_order import check_forward, output_order
from reelabel.sources.sparse_file import CachedRange, SparseFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

    from reelabel.options import Limits
    from reelabel.sources.video_file import VideoFile

    _Row = tuple[int, bool, bool, int, int]  # PTS, is_keyframe, is_shown, pos, size

# A file without an index is demuxed to find its frames if it is local and up to this size.
WHOLE_BYTES = 64 * 1024**2
# MPEG-PS/TS seeks land on the next keyframe, AVI timestamps run backwards in real files, FLV and Ogg have no index.
_SEEKABLE_FORMATS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"})


def read_index(
    file: VideoFile | SparseFile, limits: Limits, *, lists: Lists, of_any_size: bool = False
) -> tuple[VideoIndex, tuple[CachedRange, ...]]:
    """Read the header and the index of a video; a small local file without an index is demuxed.

    So is a large one to list its frames, if it may be `of_any_size`. If keyframes are not listed, the index has no
    rows, and a note says why. Returned with it are the ranges of a remote video that hold its keyframes, if it lists
    them. The file may contradict the index.

    Raises FallbackRequired if only a pass over the whole file would list its frames, VideoError as far as the header
    shows, and what the source of a remote video raises.
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
        return None if isinstance(file, SparseFile) else try_scan(file, limits, all_shown=False)
    return index if index.is_listed else None


def keyframes_of_container(file: VideoFile | SparseFile, limits: Limits) -> VideoIndex:
    with open_by_format(file, limits) as video:
        return video.read_keyframes()[0]


def try_scan(file: VideoFile | SparseFile, limits: Limits, *, all_shown: bool) -> VideoIndex | None:
    try:
        return scan_file(file, limits, all_shown=all_shown)
    except FallbackRequired:
        return None


def _read_keyframes(file: VideoFile | SparseFile, limits: Limits) -> VideoIndex:
    try:
        return keyframes_of_container(file, limits)
    except (FallbackRequired, VideoUnreadableError) as error:
        if isinstance(file, SparseFile) and isinstance(file.failure, FallbackRequired):
            file.failure = None  # the index would have needed most of the file; the header was read before it
        with open_video(file, limits) as opened:
            header = VideoIndex(info=header_info(*opened), kind="container", lists="keyframes", note=str(error))
    if isinstance(file, SparseFile) or file.size_bytes > WHOLE_BYTES:
        return header
    scanned = try_scan(file, limits, all_shown=False)
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
    with open_by_format(file, limits, with_offsets=True) as video:
        index = video.read_frames()
    if index.doubt:
        check_forward(index.pts[index.is_shown], index.is_keyframe[index.is_shown])
    return index


def scan_packets(container: InputContainer, stream: VideoStream, limits: Limits, *, all_shown: bool) -> VideoIndex:
    """List all frames of an open video as a decoder shows them, by its packets; `all_shown` if it must show every one.

    Raises FallbackRequired if the format does not seek exactly, a decoder would leave out frames, there is a palette, a
    packet is truncated, has no PTS or is flagged wrongly, or timestamps do not show the order of frames.
    """
    if container.format.name not in _SEEKABLE_FORMATS:
        raise FallbackRequired(f"seeking in {container.format.name} is inexact")
    rows: list[_Row] = []
    codec, early = stream.codec_context, None
    has_ended = has_fallen = False
    sequence = sequence_header(codec.extradata or b"", codec)
    for packet, row in _read_rows(container, stream, limits):
        if not rows:
            check_no_palette(packet)
        has_fallen = has_fallen or (bool(rows) and row[0] < rows[-1][0])
        rows.append(row)
        if not has_fallen and early is None and is_shown_early(packet, codec):
            early = packet
        if packet.is_keyframe and is_flagged_wrongly(packet, codec):
            raise FallbackRequired("a packet is flagged as a keyframe, but its frame is not")
        if all_shown and packet.is_keyframe and is_splice_point(packet, codec, has_ended=has_ended):
            raise FallbackRequired("a splice leaves out frames")
        has_ended = all_shown and ends_sequence(packet, codec)
        if all_shown and packet.is_keyframe and (stated := sequence_header(packet, codec)):
            if sequence not in {b"", stated}:
                raise FallbackRequired("pictures change in size or format")
            sequence = stated
    if len(rows) > 1 and not has_fallen:
        check_shown_in_turn(early, codec)
    return _index_of(container, stream, rows)


def scan_file(file: VideoFile | SparseFile, limits: Limits, *, all_shown: bool) -> VideoIndex:
    with open_video(file, limits) as (container, stream):
        return scan_packets(container, stream, limits, all_shown=all_shown)


def scan_announced(file: VideoFile, limits: Limits) -> VideoIndex:
    """List the frames that packets announce, in any format; a decoder may show others.

    Raises FallbackRequired if a packet is truncated or has no PTS, or timestamps jump back.
    """
    with open_video(file, limits) as (container, stream):
        rows = [row for _, row in _read_rows(container, stream, limits)]
        return _index_of(container, stream, rows, is_doubted=True)


def _read_rows(
    container: InputContainer, stream: VideoStream, limits: Limits
) -> Iterator[tuple[Packet[VideoStream], _Row]]:
    try:
        for number, packet in enumerate(read_packets(container, stream), 1):
            yield packet, (*packet_info(packet, stream), max(0, packet.pos or 0), packet.size)
            check_frame_count(number, limits)
    except av.error.FFmpegError:
        raise FallbackRequired("the demuxer failed") from None


def _index_of(
    container: InputContainer, stream: VideoStream, rows: Sequence[_Row], *, is_doubted: bool = False
) -> VideoIndex:
    pts, flags, are_shown, pos, size = np.array(rows, np.int64).reshape(-1, 5).T
    is_keyframe, is_shown = flags.astype(np.bool_), are_shown.astype(np.bool_)
    shown = np.flatnonzero(is_shown)
    info = header_info(container, stream)
    if is_doubted:
        check_forward(pts[shown], is_keyframe[shown])
        order = shown[np.argsort(pts[shown], kind="stable")]
        if not order.size:
            raise FallbackRequired("the file has no packet of video")
    else:
        order = output_order(pts, is_keyframe, is_shown)
        if not is_keyframe[order].any():
            raise FallbackRequired("no packet is flagged as a keyframe")
    if not info.time_base:
        raise FallbackRequired(NO_TIME_BASE)
    times_s = pts[order].astype(np.float64) * float(info.time_base)
    keyframe_s = times_s[is_keyframe[order]]
    return VideoIndex(
        info=info,
        kind="packets",
        lists="frames",
        pts=pts,
        is_keyframe=is_keyframe,
        is_shown=is_shown,
        pos=pos,
        size=size,
        order=order,
        time_s=times_s,
        position=np.arange(len(order)),
        keyframe_s=keyframe_s,
        keyframes=len(keyframe_s),
        first_s=float(times_s[0]),
        last_s=float(times_s[-1]),
        total_frames=len(order),
        doubt="a decoder may show other frames than the packets announce" if is_doubted else "",
    )
