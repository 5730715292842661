"""The reference strategy: a full linear decode, once to find the keyframes and once to keep the picks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reelabel.containers.demux import decode_all, open_video
from reelabel.containers.stream_properties import StreamProperties
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.limits import Limits
    from reelabel.sampled_frames import SampledFrames


def extract_by_linear_decode(request: ExtractionRequest) -> SampledFrames:
    """Decode the whole video twice.

    Raises:
        VideoError: As `extract_keyframes` does.
    """
    with open_video(request.source, request.limits) as (container, stream):
        infos, time_base = scan_frames(container, stream, request.limits), stream.time_base
    request.stats.frames += 2 * len(infos)
    keyframes = [info for info in infos if info.is_keyframe]
    candidates = keyframes or infos
    first_pts = infos[0].pts if infos else None
    chosen = request.choose([info.pts for info in candidates], time_base, first_pts=first_pts)
    wanted = {candidates[number].position: candidates[number] for number in chosen}
    pts = [info.pts for info in keyframes]
    summary = IndexSummary(keyframes=len(keyframes), frames=len(infos), keyframe_pts=pts, first_pts=first_pts)
    with open_video(request.source, request.limits) as opened:
        frames = decode_at(*opened, wanted, request.limits)
        return assemble_frames(
            request,
            partial(StreamProperties.of, *opened),
            chosen=chosen,
            frames=frames,
            summary=summary,
            method="linear",
        )


def scan_frames(container: InputContainer, stream: VideoStream, limits: Limits) -> list[FrameInfo]:
    """Decode all frames and return their PTS, positions and keyframe flags, without pixels."""
    seen = [(frame.pts, frame.key_frame, is_flagged) for frame, is_flagged in decode_all(container, stream, limits)]
    # Some decoders never flag keyframes. They output one frame per packet, so the packets' flags are used instead.
    are_marked = any(is_marked for _, is_marked, _ in seen)
    return [
        FrameInfo(pts, position, bool(is_marked if are_marked else is_flagged))
        for position, (pts, is_marked, is_flagged) in enumerate(seen)
    ]


def decode_at(
    container: InputContainer,
    stream: VideoStream,
    wanted: dict[int, FrameInfo],
    limits: Limits,
) -> Iterator[tuple[FrameInfo, VideoFrame]]:
    """Decode all frames and yield those at the wanted positions."""
    for position, (frame, _) in enumerate(decode_all(container, stream, limits)):
        if position in wanted:
            yield wanted[position], frame
