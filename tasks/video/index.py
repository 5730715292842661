"""The frames of a stream, as its packets announce them or as its decoder shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import av.error

from tasks.video.source import decode_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

# MPEG-PS/TS land on the next keyframe, AVI's times run backwards in real files, FLV and Ogg have no index.
_SEEKABLE_FORMATS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"})
_VP8_SHOWN = 0x10


class SeekMisledError(Exception):
    """Seeking cannot be trusted in this file, for the reason given; decode linearly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameIndex:
    """What is known of a stream's frames.

    Attributes:
        pts: Presentation times in presentation order; None where the container gives none.
        keyframes: Positions in `pts` of the keyframes, ascending.
    """

    pts: Sequence[int | None]
    keyframes: Sequence[int]

    @property
    def candidates(self) -> Sequence[int]:
        """Positions to pick from: the keyframes, or all frames where nothing is marked as one."""
        return self.keyframes or range(len(self.pts))


def index_by_packets(container: InputContainer, stream: VideoStream) -> FrameIndex:
    """List the frames without decoding.

    Raises:
        SeekMisledError: The packets do not tell enough to seek by them.
    """
    if container.format.name not in _SEEKABLE_FORMATS:
        raise SeekMisledError(f"seeks in {container.format.name} are not exact")
    try:
        sights = [_sight(packet, stream) for packet in container.demux(stream) if packet.size]
    except av.error.FFmpegError:
        raise SeekMisledError("the demuxer stopped at an error") from None
    return _index(sights)


def index_by_decoding(container: InputContainer, stream: VideoStream) -> FrameIndex:
    """Decode all frames and drop them, keeping what they say of themselves."""
    seen = [(frame.pts, frame.key_frame, is_flagged) for frame, is_flagged in decode_all(container, stream)]
    marked = [position for position, (_, is_marked, _) in enumerate(seen) if is_marked]
    # Some decoders never mark a keyframe; they show a frame per packet, so the packets' flags stand in.
    flagged = [position for position, (_, _, is_flagged) in enumerate(seen) if is_flagged]
    return FrameIndex(pts=[pts for pts, _, _ in seen], keyframes=marked or flagged)


class _Sight(NamedTuple):
    """One packet, as far as it matters here."""

    pts: int
    is_keyframe: bool
    is_shown: bool


def _sight(packet: Packet[VideoStream], stream: VideoStream) -> _Sight:
    if packet.is_corrupt:
        raise SeekMisledError("a packet is cut short")
    if packet.pts is None:
        raise SeekMisledError("packets without a presentation time")
    is_hidden = stream.codec_context.name == "vp8" and not memoryview(packet)[0] & _VP8_SHOWN
    # An edit list discards what lies before its start.
    return _Sight(packet.pts, packet.is_keyframe, is_shown=not (packet.is_discard or is_hidden))


def _index(sights: list[_Sight]) -> FrameIndex:
    times = sorted(sight.pts for sight in sights if sight.is_shown)
    where = {pts: position for position, pts in enumerate(times)}
    keyframes = [where[sight.pts] for sight in sights if sight.is_keyframe and sight.is_shown]
    if len(where) != len(times):
        raise SeekMisledError("packets that share a presentation time")
    if not keyframes:
        raise SeekMisledError("no packet is flagged as a keyframe")
    # What a decoder cannot decode it does not show: positions would be wrong.
    if not sights[0].is_keyframe or times[0] < sights[0].pts:
        raise SeekMisledError("frames stand before the first keyframe")
    return FrameIndex(pts=times, keyframes=sorted(keyframes))
