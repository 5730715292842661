"""Where HEVC has been cut and joined, so that a decoder leaves out frames that the container announces.

These are the leading pictures of a BLA picture, or of a CRA picture after the end of a sequence (ITU-T H.265, 8.1.3),
and what has not been shown yet at such a CRA picture, or at an IDR picture that says so (C.5.2.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.containers.nal import nal_length_bytes, nal_units

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

# Types of NAL units in HEVC (ITU-T H.265, table 7-1).
_SLICES = range(32)
_BLA, _IDR, _CRA = range(16, 19), range(19, 21), 21
_ENDS = (36, 37)  # of a sequence, and of the bitstream
_END_BYTES = 2
_NO_OUTPUT_OF_PRIOR_PICS = 0x40  # in the first byte of a slice header


def begins_splice(packet: Packet[VideoStream], codec: VideoCodecContext, *, has_ended: bool = False) -> bool:
    """Return whether a keyframe is where HEVC has been cut, so that a decoder leaves out frames around it.

    Args:
        packet: Its packet.
        codec: Its decoder.
        has_ended: Whether the packet before it ends a sequence.
    """
    for unit in nal_units(memoryview(packet), nal_length_bytes(codec, only="hevc")):
        kind = unit[0] >> 1 & 0x3F
        has_ended |= kind in _ENDS
        if kind in _SLICES:
            says_so = any(byte & _NO_OUTPUT_OF_PRIOR_PICS for byte in unit[_END_BYTES : _END_BYTES + 1])
            return kind in _BLA or (kind == _CRA and has_ended) or (kind in _IDR and says_so)
    return False


def ends_sequence(packet: Packet[VideoStream], codec: VideoCodecContext) -> bool:
    """Return whether the last NAL unit of a packet of HEVC ends a sequence."""
    length_bytes = nal_length_bytes(codec, only="hevc")
    if not length_bytes:
        return False
    last = bytes(memoryview(packet)[-length_bytes - _END_BYTES :])
    return any(last == _END_BYTES.to_bytes(length_bytes) + bytes([kind << 1, 1]) for kind in _ENDS)
