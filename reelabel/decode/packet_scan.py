"""The frames of a video, by a pass over its packets; nothing is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av.error
import numpy as np

from reelabel.containers.container_format import NO_TIME_BASE
from reelabel.containers.demux import check_frame_count, open_video, read_packets
from reelabel.containers.packet_info import (
    check_no_palette,
    check_shown_in_turn,
    ends_sequence,
    is_shown_early,
    is_splice_point,
    packet_info,
)
from reelabel.containers.stream_properties import video_info
from reelabel.decode.packets import is_flagged_wrongly
from reelabel.errors import FallbackRequired
from reelabel.index import VideoIndex
from reelabel.output_order import check_forward, output_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from av.container import InputContainer
    from av.video.stream import VideoStream

    from reelabel.limits import Limits
    from reelabel.sources.sparse_file import SparseFile
    from reelabel.sources.video_file import VideoFile

# MPEG-PS/TS seeks land on the next keyframe, AVI timestamps run backwards in real files, FLV and Ogg have no index.
_SEEKABLE_FORMATS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"})


def scan_packets(container: InputContainer, stream: VideoStream, limits: Limits, *, all_shown: bool) -> VideoIndex:
    """List all frames of an open video as a decoder shows them, by its packets; `all_shown` if it must show every one.

    Raises:
        FallbackRequired: The format does not seek exactly, a decoder would leave out frames, there is a palette, a
            packet is truncated, has no PTS or is flagged wrongly, or timestamps do not show the order of frames.
        VideoTooLargeError: There are more than `limits.max_frames`.
    """
    if container.format.name not in _SEEKABLE_FORMATS:
        raise FallbackRequired(f"seeking in {container.format.name} is inexact")
    rows: list[tuple[int, bool, bool, int, int]] = []
    codec, early = stream.codec_context, None
    has_ended = has_fallen = False
    try:
        for packet in read_packets(container, stream):
            if not rows:
                check_no_palette(packet)
            info = packet_info(packet, stream)
            has_fallen = has_fallen or (bool(rows) and info.pts < rows[-1][0])
            rows.append((*info, max(0, packet.pos or 0), packet.size))
            check_frame_count(len(rows), limits)
            if not has_fallen and early is None and is_shown_early(packet, codec):
                early = packet
            if packet.is_keyframe and is_flagged_wrongly(packet, codec):
                raise FallbackRequired("a packet is flagged as a keyframe, but its frame is not")
            if all_shown and packet.is_keyframe and is_splice_point(packet, codec, has_ended=has_ended):
                raise FallbackRequired("a splice leaves out frames")
            has_ended = all_shown and ends_sequence(packet, codec)
    except av.error.FFmpegError:
        raise FallbackRequired("the demuxer failed") from None
    if len(rows) > 1 and not has_fallen:
        check_shown_in_turn(early, codec)
    return _index(container, stream, rows)


def scan_file(file: VideoFile | SparseFile, limits: Limits, *, all_shown: bool) -> VideoIndex:
    """List all frames of a file, as `scan_packets` does."""
    with open_video(file, limits) as (container, stream):
        return scan_packets(container, stream, limits, all_shown=all_shown)


def scan_announced(file: VideoFile, limits: Limits) -> VideoIndex:
    """List the frames that packets announce, in any format; a decoder may show others.

    Raises:
        FallbackRequired: A packet is truncated or has no PTS, or timestamps jump back.
    """
    rows: list[tuple[int, bool, bool, int, int]] = []
    with open_video(file, limits) as (container, stream):
        try:
            for packet in read_packets(container, stream):
                rows.append((*packet_info(packet, stream), max(0, packet.pos or 0), packet.size))
                check_frame_count(len(rows), limits)
        except av.error.FFmpegError:
            raise FallbackRequired("the demuxer failed") from None
        return _index(container, stream, rows, is_doubted=True)


def _index(
    container: InputContainer,
    stream: VideoStream,
    rows: Sequence[tuple[int, bool, bool, int, int]],
    *,
    is_doubted: bool = False,
) -> VideoIndex:
    pts, flags, are_shown, pos, size = np.array(rows, np.int64).reshape(-1, 5).T
    is_keyframe, is_shown = flags.astype(np.bool_), are_shown.astype(np.bool_)
    shown = np.flatnonzero(is_shown)
    info = video_info(container, stream)
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
