"""Whether a frame's flag that it is interlaced follows from its own packet, as the scaling of its chroma does.

FFmpeg's H.264 decoder flags a picture that is coded as a plain frame, but shown as two fields (ITU-T H.264, D.2.3:
`pic_struct` 3 or 4), like the picture before it, and as interlaced if there was none. Where such pictures alternate
with others, as in film on video, only decoding from an earlier picture gives the flag of a linear decode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.containers.nal import nal_length_bytes, nal_units
from reelabel.decode.parameter_sets import Bits, Sps, header_sps
from reelabel.errors import FallbackRequired

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_SLICES = (1, 5)  # types of NAL units: of another picture, and of an IDR picture
_HEAD_BYTES = 32


def require_own_flag(frame: VideoFrame, packet: Packet[VideoStream] | None, codec: VideoCodecContext) -> None:
    """Check that a frame is not flagged as interlaced because of earlier ones.

    Args:
        frame: The frame, decoded without all that precede it.
        packet: Its packet; None if unknown.
        codec: Its decoder.

    Raises:
        FallbackRequired: It is.
    """
    if not frame.interlaced_frame or codec.codec.canonical_name != "h264":
        return
    if not _is_coded_interlaced(packet, codec):
        raise FallbackRequired("whether a picture is interlaced depends on earlier ones")


def _is_coded_interlaced(packet: Packet[VideoStream] | None, codec: VideoCodecContext) -> bool:
    """Return whether a picture consists of fields, or of macroblocks of fields; False if unknown."""
    length_bytes = nal_length_bytes(codec)
    if length_bytes is None or (packet is not None and any(packet.iter_sidedata())):
        return False  # the parameter sets are elsewhere
    try:
        sps = header_sps(codec)
        is_field = packet is not None and sps.may_be_fields and _is_field(packet, length_bytes, sps)
    except (IndexError, ValueError):
        return False
    return sps.is_adaptive or is_field


def _is_field(packet: Packet[VideoStream], length_bytes: int, sps: Sps) -> bool:
    """Return `field_pic_flag` of the first slice (ITU-T H.264, 7.3.3)."""
    for unit in nal_units(memoryview(packet), length_bytes):
        if unit[0] & 0x1F in _SLICES:
            bits = Bits(bytes(unit[1:_HEAD_BYTES]))
            for _ in range(3):
                bits.read_exp_golomb()
            bits.read(sps.frame_num_bits)
            return bool(bits.read(1))
    return False
