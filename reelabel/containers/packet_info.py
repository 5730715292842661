"""What a packet says of its frame without being decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reelabel.errors import FallbackRequired

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

# H.264 and HEVC reorder at most this many frames (A.3.1 and A.4.2: MaxDpbFrames): so many may be decoded before a frame
# and presented after it. Other codecs reorder fewer.
MAX_REORDERED = 16
_VP8_SHOW_FRAME = 0x10


class PacketInfo(NamedTuple):
    """The properties of one packet that determine order and keyframes."""

    pts: int
    is_keyframe: bool
    is_shown: bool


def require_no_palette(first: Packet[VideoStream]) -> None:
    """Check that a demuxer hands no palette over, which it does with the first packet that it reads, and only then.

    Raises:
        FallbackRequired: It does.
    """
    if any(data.data_type == "palette" for data in first.iter_sidedata()):
        raise FallbackRequired("pictures have a palette that is stored apart")


def packet_info(packet: Packet[VideoStream], stream: VideoStream) -> PacketInfo:
    """Read the properties of a packet.

    Raises:
        FallbackRequired: The packet is truncated, or has no PTS.
    """
    if packet.is_corrupt:
        raise FallbackRequired("a packet is cut short")
    if packet.pts is None:
        raise FallbackRequired("a packet has no PTS")
    is_hidden = stream.codec_context.name == "vp8" and not memoryview(packet)[0] & _VP8_SHOW_FRAME
    # FFmpeg marks packets outside the edit list as discarded.
    return PacketInfo(packet.pts, packet.is_keyframe, is_shown=not (packet.is_discard or is_hidden))
