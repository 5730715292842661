"""The strategy for seekable containers without an index in their header: list the packets, then seek."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import av.error
import numpy as np

from reelabel.containers.demux import check_frame_count, open_video, read_packets
from reelabel.containers.packet_info import packet_info, require_no_palette
from reelabel.containers.reordering import is_shown_early, require_shown_in_turn
from reelabel.containers.stream_properties import StreamProperties, pts_to_s
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames
from reelabel.decode.interlacing import require_own_flag
from reelabel.decode.keyframe_check import is_flagged_wrongly, require_keyframe
from reelabel.decode.parameter_sets import brings_parameters, require_own_parameters
from reelabel.decode.splices import begins_splice, ends_sequence
from reelabel.errors import FallbackRequired
from reelabel.output_order import output_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.containers.packet_info import PacketInfo
    from reelabel.decode.assemble import DecodeStats, ExtractionRequest
    from reelabel.limits import Limits
    from reelabel.sampled_frames import SampledFrames

# MPEG-PS/TS seeks land on the next keyframe, AVI timestamps run backwards in real files, FLV and Ogg have no index.
_SEEKABLE_FORMATS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"})
_MAX_FRAMES_AFTER_SEEK = 32


def extract_by_seeking(request: ExtractionRequest) -> SampledFrames:
    """Demux all packets, but decode only at the picks.

    Raises:
        FallbackRequired: The packets are not sufficient, or a seek missed its target.
        VideoError: As `extract_keyframes` does.
    """
    if request.every:
        raise FallbackRequired("all keyframes were requested")
    with open_video(request.source, request.limits) as opened:
        pts, keyframes = list_frames(list_packets(*opened, request.limits, all_shown=True))
        times_s = times_of(pts, opened[1])
    chosen = request.choose(len(keyframes), times_s[keyframes], first_s=float(times_s[0]))
    infos = [
        FrameInfo(int(pts[at]), float(times_s[at]), int(at), is_keyframe=True)
        for at in keyframes[list(dict.fromkeys(chosen))]
    ]
    summary = IndexSummary(
        keyframes=len(keyframes),
        frames=len(pts),
        keyframe_s=times_s[keyframes],
        first_s=float(times_s[0]),
        last_s=float(times_s[-1]),
    )
    # Reopened: demuxing to the end may have left state behind that a fresh demuxer would not have.
    with open_video(request.source, request.limits, strictly=True) as opened:
        first = next(read_packets(*opened))
        bring = brings_parameters(first, opened[1].codec_context)
        frames = ((info, _frame_at(*opened, info.pts, request.stats, others_bring=bring)) for info in infos)
        return assemble_frames(
            request, partial(StreamProperties.of, *opened), chosen=chosen, frames=frames, summary=summary, method="seek"
        )


def list_packets(
    container: InputContainer, stream: VideoStream, limits: Limits, *, all_shown: bool = False
) -> list[PacketInfo]:
    """Demux all packets of a stream without decoding.

    Args:
        container: The open container.
        stream: Its video stream.
        limits: Limits on the number of frames.
        all_shown: Check that no splice makes a decoder leave out frames.

    Raises:
        FallbackRequired: Seeks in the container are inexact, the demuxer fails, there is a palette or a splice,
            a packet is truncated, has no PTS or is flagged wrongly, or timestamps do not show the order of frames.
        VideoTooLargeError: There are more than `limits.max_frames`.
    """
    if container.format.name not in _SEEKABLE_FORMATS:
        raise FallbackRequired(f"seeking in {container.format.name} is inexact")
    try:
        listed: list[PacketInfo] = []
        has_ended = has_fallen = False
        early = None
        for packet in read_packets(container, stream):
            if not listed:
                require_no_palette(packet)
            listed.append(packet_info(packet, stream))
            check_frame_count(len(listed), limits)
            has_fallen = has_fallen or listed[-1].pts < listed[-2:][0].pts
            if not has_fallen and early is None and is_shown_early(packet, stream.codec_context):
                early = packet
            if packet.is_keyframe and is_flagged_wrongly(packet, stream.codec_context):
                raise FallbackRequired("a packet is flagged as a keyframe, but its frame is not")
            if all_shown and packet.is_keyframe and begins_splice(packet, stream.codec_context, has_ended=has_ended):
                raise FallbackRequired("a splice leaves out frames")
            has_ended = all_shown and ends_sequence(packet, stream.codec_context)
    except av.error.FFmpegError:
        raise FallbackRequired("the demuxer failed") from None
    if len(listed) > 1 and not has_fallen:
        require_shown_in_turn(early, stream.codec_context)
    return listed


def list_frames(listed: list[PacketInfo]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the PTS of all shown frames, ascending, and the positions of keyframes among them; both int64.

    Raises:
        FallbackRequired: The packets do not determine the order, or there is no keyframe.
    """
    pts = np.array([packet.pts for packet in listed], np.int64)
    is_keyframe = np.array([packet.is_keyframe for packet in listed], np.bool_)
    order = output_order(pts, is_keyframe, np.array([packet.is_shown for packet in listed], np.bool_))
    keyframes = np.flatnonzero(is_keyframe[order])
    if not keyframes.size:
        raise FallbackRequired("no packet is flagged as a keyframe")
    return pts[order], keyframes


def times_of(pts: npt.NDArray[np.int64], stream: VideoStream) -> npt.NDArray[np.float64]:
    """Return the times of PTS in seconds.

    Raises:
        FallbackRequired: The stream has no time base.
    """
    times_s = pts_to_s(pts, stream.time_base)
    if times_s is None:
        raise FallbackRequired("the stream has no time base")
    return times_s


def _frame_at(
    container: InputContainer, stream: VideoStream, wanted: int | None, stats: DecodeStats, *, others_bring: bool
) -> VideoFrame:
    """Seek to a keyframe, decode it and check that it is the wanted one, and needs nothing that others may bring."""
    assert wanted is not None

    def decode() -> Iterator[VideoFrame]:
        for packet in read_packets(container, stream):
            if packet.pts == wanted:
                require_own_parameters(packet, stream.codec_context, others_bring_them=others_bring)
            yield from stream.codec_context.decode(packet)
        yield from stream.codec_context.decode(None)

    try:
        container.seek(wanted, stream=stream, backward=True)
        frame = _first_match(stats.each(decode()), wanted)
    except MemoryError:
        raise
    except av.error.FFmpegError:
        raise FallbackRequired("a seek failed") from None
    require_keyframe(frame)
    require_own_flag(frame, None, stream.codec_context)
    return frame


def _first_match(frames: Iterator[VideoFrame], wanted: int) -> VideoFrame:
    for count, frame in enumerate(frames):
        if frame.pts == wanted:
            return frame
        if frame.pts is None or frame.pts > wanted or count >= _MAX_FRAMES_AFTER_SEEK:
            raise FallbackRequired("a seek missed its target")
    raise FallbackRequired("a seek reached the end of the stream")
