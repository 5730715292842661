"""Checks that a keyframe decoded out of order equals the linear decode's frame."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import av.error
from av.video.frame import PictureType

from tasks.video.jpeg import has_own_tables
from tasks.video.misled import DamagedKeyframeError, FastPathUnavailableError, IndexMismatchError

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_PRIMINGS = 2


def require_keyframe(frame: VideoFrame) -> None:
    """Check that a frame depends on no packet but its own.

    Raises:
        ContradictedError: The frame is not a keyframe.
        KeyframeDamagedError: The frame is damaged.
    """
    if not frame.key_frame or frame.pict_type != PictureType.I:
        raise IndexMismatchError("a packet is flagged as a keyframe, but its frame is not")
    if frame.is_corrupt:
        raise DamagedKeyframeError


def prime_mpeg4_decoder(codec: VideoCodecContext, first: Packet[VideoStream]) -> None:
    """Decode the first packet repeatedly, so that FFmpeg's MPEG-4 decoder settles its bug workarounds.

    The decoder attributes missing padding to a faulty encoder until intact frames lower its `padding_bug_score`, and
    until then does not report some damage.
    """
    if codec.name == "mpeg4":
        for _ in range(_PRIMINGS):
            with suppress(FastPathUnavailableError):
                decode_single_packet(codec, first)


def decode_single_packet(codec: VideoCodecContext, packet: Packet[VideoStream]) -> VideoFrame:
    """Decode a single packet, independently of all others.

    Raises:
        ContradictedError: The result is not exactly one keyframe with the packet's PTS.
        KeyframeDamagedError: The keyframe is damaged.
        MisledError: The packet is a JPEG frame that relies on the tables of earlier ones.
    """
    if codec.name == "mjpeg" and not has_own_tables(memoryview(packet)):
        raise FastPathUnavailableError("a JPEG frame lacks its own tables")
    try:
        frames = codec.decode(packet) + codec.decode(None)
    except MemoryError:
        raise
    except av.error.FFmpegError:
        raise DamagedKeyframeError from None
    finally:
        codec.flush_buffers()
    if len(frames) != 1 or frames[0].pts != packet.pts:
        raise IndexMismatchError("a keyframe's packet does not decode to its frame")
    require_keyframe(frames[0])
    return frames[0]
