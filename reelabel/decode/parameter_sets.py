"""Parameter sets of H.264, and whether a keyframe decoded by itself uses the same ones as in a linear decode.

In files that were joined without re-encoding, packets carry parameter sets of their own. FFmpeg repeats them only
before IDR pictures, so that an open GOP depends on those of an earlier packet. And its decoder keeps the colour range
and matrix of an earlier sequence where the next one states none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reelabel.containers.packet_info import nal_length_bytes, nal_units
from reelabel.errors import FallbackRequired

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream


_IDR, _SPS, _PPS = 5, 7, 8  # types of NAL units
_WITH_CHROMA_FORMAT = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135})
_FULL_CHROMA = 3
_SPS_AT = 8  # in avcC: after its own fields, the number of parameter sets, and the length of the first
_OWN_ASPECT = 255
_MAX_BITS = 32


class ColoursChangeError(FallbackRequired):
    """Some parts of a stream state their colours; others do not, and inherit those of what was decoded last."""


class Sps(NamedTuple):
    """Fields of a sequence parameter set (ITU-T H.264, 7.3.2.1.1 and E.1.1)."""

    frame_num_bits: int
    may_be_fields: bool
    is_adaptive: bool
    states_range: bool
    states_colours: bool


def header_sps(codec: VideoCodecContext) -> Sps:
    """Read the first sequence parameter set of a header; IndexError or ValueError if there is none."""
    return _read_sps(_header_bytes(codec))


def _header_bytes(codec: VideoCodecContext) -> bytes:
    avcc = codec.extradata or b""
    return avcc[_SPS_AT : _SPS_AT + int.from_bytes(avcc[_SPS_AT - 2 : _SPS_AT])]


def has_parameter_sets(packet: Packet[VideoStream], codec: VideoCodecContext) -> bool:
    """Return whether a packet of H.264 carries parameter sets; false for other codecs, or if it cannot be read."""
    units = nal_units(memoryview(packet), nal_length_bytes(codec, only="h264"))
    return any(unit[0] & 0x1F in {_SPS, _PPS} for unit in units)


def check_parameter_sets(
    packet: Packet[VideoStream], codec: VideoCodecContext, *, others_carry_them: bool = False
) -> None:
    """Check that a keyframe of H.264, decoded by itself, is decoded as after all that precede it.

    Raises FallbackRequired if it may need the parameter sets of an earlier packet, as where others carry some;
    ColoursChangeError if its own state more, or less, about colours than those in the header.
    """
    if not (length_bytes := nal_length_bytes(codec, only="h264")):
        return
    units: dict[int, memoryview] = {}
    for unit in nal_units(memoryview(packet), length_bytes):
        units.setdefault(unit[0] & 0x1F, unit)
    if others_carry_them and not units.keys() & {_IDR, _SPS}:
        raise FallbackRequired("a keyframe needs the parameter sets of an earlier packet")
    header = _header_bytes(codec)
    own = [bytes(units[_SPS])] if _SPS in units and units[_SPS] != header else []
    own += [bytes(each)[_SPS_AT:] for each in packet.iter_sidedata() if each.data_type == "new_extradata"]
    try:
        if own and any(_colours(_read_sps(sps)) != _colours(_read_sps(header)) for sps in own):
            raise ColoursChangeError("whether colours are stated changes within the stream")
    except (IndexError, ValueError):
        return


def _colours(sps: Sps) -> tuple[bool, bool]:
    return sps.states_range, sps.states_colours


def _read_sps(sps: bytes) -> Sps:
    bits = Bits(sps[1:])
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
    _skip_picture_order(bits)
    bits.read_exp_golomb()
    bits.read(1)
    for _ in range(2):
        bits.read_exp_golomb()
    may_be_fields = not bits.read(1)
    is_adaptive = may_be_fields and bool(bits.read(1))
    bits.read(1)
    for _ in range(4 if bits.read(1) else 0):  # cropping
        bits.read_exp_golomb()
    states_range, states_colours = _stated(bits) if bits.read(1) else (False, False)
    return Sps(frame_num_bits, may_be_fields, is_adaptive, states_range, states_colours)


def _skip_picture_order(bits: Bits) -> None:
    order = bits.read_exp_golomb()
    if order == 0:
        bits.read_exp_golomb()
    elif order == 1:
        bits.read(1)
        for _ in range(2):
            bits.read_exp_golomb()
        for _ in range(bits.read_exp_golomb()):
            bits.read_exp_golomb()


def _stated(bits: Bits) -> tuple[bool, bool]:
    """Return whether the VUI states the range, and the matrix, of colours (ITU-T H.264, E.1.1)."""
    if bits.read(1) and bits.read(8) == _OWN_ASPECT:
        bits.read(32)
    if bits.read(1):  # overscan
        bits.read(1)
    if not bits.read(1):
        return False, False
    bits.read(4)
    return True, bool(bits.read(1))


def _skip_scaling_list(bits: Bits, size: int) -> None:
    """Read past a scaling list (ITU-T H.264, 7.3.2.1.1.1)."""
    scale = 8
    for _ in range(size if bits.read(1) else 0):
        number = bits.read_exp_golomb()
        scale = (scale + (number + 1) // 2 * (1 if number % 2 else -1)) % 256
        if not scale:
            return


class Bits:
    """Reads a NAL unit bit by bit, without its emulation prevention bytes."""

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
        """Read a number of variable length (ITU-T H.264, 9.1)."""
        zeros = 0
        while not self.read(1):
            zeros += 1
        if zeros > _MAX_BITS:
            raise ValueError("a number of more than 32 bits")
        return (1 << zeros) - 1 + self.read(zeros)


# FFmpeg's H.264 decoder flags a picture that is coded as a plain frame, but shown as two fields (ITU-T H.264, D.2.3:
# `pic_struct` 3 or 4), like the picture before it, and as interlaced if there was none. Where such pictures alternate
# with others, as in film on video, only decoding from an earlier picture gives the flag of a linear decode, by which
# its chroma is scaled.
_SLICES = (1, 5)  # types of NAL units: of another picture, and of an IDR picture
_HEAD_BYTES = 32


def check_interlaced_flag(frame: VideoFrame, packet: Packet[VideoStream] | None, codec: VideoCodecContext) -> None:
    """Raise FallbackRequired if a frame may be flagged as interlaced only because of the one decoded before it."""
    if not frame.interlaced_frame or codec.codec.canonical_name != "h264":
        return
    if not _is_coded_interlaced(packet, codec):
        raise FallbackRequired("whether a picture is interlaced depends on earlier ones")


def _is_coded_interlaced(packet: Packet[VideoStream] | None, codec: VideoCodecContext) -> bool:
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
