"""Proofs that a frame decoded out of its order is the linear decode's own."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import av.error
from av.video.frame import PictureType

from tasks.video.jpeg import brings_its_tables
from tasks.video.misled import ContradictedError, KeyframeDamagedError, MisledError

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_PRIMINGS = 2


def require_keyframe(frame: VideoFrame) -> None:
    """Check that a frame was decoded from nothing but its own packet.

    Raises:
        ContradictedError: It may depend on others.
        KeyframeDamagedError: It is damaged.
    """
    if not frame.key_frame or frame.pict_type != PictureType.I:
        raise ContradictedError("a packet is flagged as a keyframe, its frame is not")
    if frame.is_corrupt:
        raise KeyframeDamagedError


def prime(codec: VideoCodecContext, first: Packet[VideoStream]) -> None:
    """Have MPEG-4's decoder make up its mind about the encoder.

    It takes missing padding for an encoder's habit until whole pictures tell it otherwise
    (`padding_bug_score` in FFmpeg), and until then takes some damage for that habit.
    """
    if codec.name == "mpeg4":
        for _ in range(_PRIMINGS):
            with suppress(MisledError):
                decode_alone(codec, first)


def decode_alone(codec: VideoCodecContext, packet: Packet[VideoStream]) -> VideoFrame:
    """Decode one packet by itself.

    Raises:
        ContradictedError: What comes out is not one keyframe with the packet's time.
        KeyframeDamagedError: It is damaged.
    """
    if codec.name == "mjpeg" and not brings_its_tables(memoryview(packet)):
        raise MisledError("a JPEG picture without tables of its own")
    try:
        frames = codec.decode(packet) + codec.decode(None)
    except MemoryError:
        raise
    except av.error.FFmpegError:
        raise KeyframeDamagedError from None
    finally:
        codec.flush_buffers()
    if len(frames) != 1 or frames[0].pts != packet.pts:
        raise ContradictedError("a keyframe's packet does not decode to its frame")
    require_keyframe(frames[0])
    return frames[0]
