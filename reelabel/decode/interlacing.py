"""Whether a frame's flag that it is interlaced follows from its own packet, as the scaling of its chroma does.

FFmpeg's H.264 decoder flags a picture that is coded as a plain frame, but shown as two fields (ITU-T H.264, D.2.3:
`pic_struct` 3 or 4), like the picture before it, and as interlaced if there was none. Where such pictures alternate
with others, as in film on video, only decoding from an earlier picture gives the flag of a linear decode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reelabel.decode.keyframe_check import h264_length_bytes
from reelabel.fast_path import FastPathUnavailableError

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_SLICES = (1, 5)  # types of NAL units: of another picture, and of an IDR picture
_WITH_CHROMA_FORMAT = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135})
_FULL_CHROMA = 3
_SPS_START = 8  # in avcC: after its own fields, the number of parameter sets, and the length of the first
_MAX_BITS = 32


class _Sps(NamedTuple):
    """What a sequence parameter set says of how pictures are coded (ITU-T H.264, 7.3.2.1.1)."""

    frame_num_bits: int
    may_be_fields: bool
    is_adaptive: bool


def require_own_flag(frame: VideoFrame, packet: Packet[VideoStream] | None, codec: VideoCodecContext) -> None:
    """Check that a frame is not flagged as interlaced because of earlier ones.

    Args:
        frame: The frame, decoded without all that precede it.
        packet: Its packet; None if unknown.
        codec: Its decoder.

    Raises:
        FastPathUnavailableError: It is.
    """
    if not frame.interlaced_frame or codec.codec.canonical_name != "h264":
        return
    if not _is_coded_interlaced(packet, codec):
        raise FastPathUnavailableError("whether a picture is interlaced depends on earlier ones")


def _is_coded_interlaced(packet: Packet[VideoStream] | None, codec: VideoCodecContext) -> bool:
    """Return whether a picture consists of fields, or of macroblocks of fields; False if unknown."""
    length_bytes = h264_length_bytes(codec.extradata)
    if length_bytes is None or (packet is not None and any(packet.iter_sidedata())):
        return False  # the parameter sets are elsewhere
    try:
        sps = _read_sps(codec.extradata or b"")
        is_field = packet is not None and sps.may_be_fields and _is_field(packet, length_bytes, sps)
    except (IndexError, ValueError):
        return False
    return sps.is_adaptive or is_field


def _read_sps(avcc: bytes) -> _Sps:
    bits = _Bits(avcc[_SPS_START + 1 :])
    profile = bits.read(8)
    bits.read(16)
    bits.read_exp_golomb()
    if profile in _WITH_CHROMA_FORMAT:
        chroma_format = bits.read_exp_golomb()
        if chroma_format == _FULL_CHROMA:
            bits.read(1)
        bits.read_exp_golomb()
        bits.read_exp_golomb()
        bits.read(1)
        if bits.read(1):
            for number in range(12 if chroma_format == _FULL_CHROMA else 8):
                _skip_scaling_list(bits, 16 if number < 6 else 64)  # noqa: PLR2004 - the first six are of 4x4 blocks
    frame_num_bits = bits.read_exp_golomb() + 4
    order = bits.read_exp_golomb()
    if order == 0:
        bits.read_exp_golomb()
    elif order == 1:
        bits.read(1)
        for _ in range(2):
            bits.read_exp_golomb()
        for _ in range(bits.read_exp_golomb()):
            bits.read_exp_golomb()
    bits.read_exp_golomb()
    bits.read(1)
    for _ in range(2):
        bits.read_exp_golomb()
    may_be_fields = not bits.read(1)
    return _Sps(frame_num_bits, may_be_fields, is_adaptive=may_be_fields and bool(bits.read(1)))


def _skip_scaling_list(bits: _Bits, size: int) -> None:
    """Read past a scaling list (ITU-T H.264, 7.3.2.1.1.1)."""
    scale = 8
    for _ in range(size if bits.read(1) else 0):
        number = bits.read_exp_golomb()
        scale = (scale + (number + 1) // 2 * (1 if number % 2 else -1)) % 256
        if not scale:
            return


def _is_field(packet: Packet[VideoStream], length_bytes: int, sps: _Sps) -> bool:
    """Return `field_pic_flag` of the first slice (ITU-T H.264, 7.3.3)."""
    data, start = bytes(packet), 0
    while start + length_bytes < len(data):
        at = start + length_bytes
        start = at + int.from_bytes(data[start:at])
        if data[at] & 0x1F in _SLICES:
            bits = _Bits(data[at + 1 : at + 1 + _MAX_BITS])
            for _ in range(3):
                bits.read_exp_golomb()
            bits.read(sps.frame_num_bits)
            return bool(bits.read(1))
    return False


class _Bits:
    """Reads a NAL unit bit by bit, without the bytes that prevent start codes within it."""

    def __init__(self, unit: bytes) -> None:
        self._data = unit.replace(b"\0\0\3", b"\0\0")
        self._at = 0

    def read(self, count: int) -> int:
        value = 0
        for _ in range(count):
            value = value << 1 | self._data[self._at // 8] >> 7 - self._at % 8 & 1
            self._at += 1
        return value

    def read_exp_golomb(self) -> int:
        zeros = 0
        while not self.read(1):
            zeros += 1
        if zeros > _MAX_BITS:
            raise ValueError("a number of more than 32 bits")
        return (1 << zeros) - 1 + self.read(zeros)
