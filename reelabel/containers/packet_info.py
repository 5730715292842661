"""Properties of a picture that can be read from its packet without decoding: order, keyframes, splices.

NAL units of H.264, HEVC and VVC are read as MP4 and Matroska store them, each after its length (ISO/IEC 14496-15).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from reelabel.errors import FallbackRequired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream


_VP8_SHOW_FRAME = 0x10


class PacketInfo(NamedTuple):
    pts: int
    is_keyframe: bool
    is_shown: bool


def check_no_palette(first: Packet[VideoStream]) -> None:
    if any(data.data_type == "palette" for data in first.iter_sidedata()):
        raise FallbackRequired("pictures have a palette that is stored apart")


def packet_info(packet: Packet[VideoStream], stream: VideoStream) -> PacketInfo:
    """Read the properties of a packet; raise FallbackRequired if it is truncated, or has no PTS."""
    if packet.is_corrupt:
        raise FallbackRequired("a packet is cut short")
    if packet.pts is None:
        raise FallbackRequired("a packet has no PTS")
    is_hidden = stream.codec_context.name == "vp8" and not memoryview(packet)[0] & _VP8_SHOW_FRAME
    # FFmpeg marks packets outside the edit list as discarded.
    return PacketInfo(packet.pts, packet.is_keyframe, is_shown=not (packet.is_discard or is_hidden))


_LENGTH_AT = {"h264": 4, "hevc": 21}  # of two bits in avcC and hvcC
_VVCC = 0xF8  # bits that are set in the first byte of vvcC, before two of the length


def nal_length_bytes(codec: VideoCodecContext, *, only: str = "") -> int | None:
    """Return the size of the length fields of a stream; None if it has none, or is of another codec than `only`."""
    name, extradata = codec.codec.canonical_name, codec.extradata
    if name == "vvc" and only in {"", name}:
        return (extradata[0] >> 1 & 3) + 1 if extradata and extradata[0] & _VVCC == _VVCC else None
    at = _LENGTH_AT.get(name)
    if at is None or (only and only != name):
        return None
    return (extradata[at] & 3) + 1 if extradata and len(extradata) > at and extradata[0] == 1 else None


def nal_units(data: memoryview, length_bytes: int | None, *, whole_only: bool = False) -> Iterator[memoryview]:
    """Yield the NAL units of a packet up to the first empty one; the last may be cut short, unless `whole_only`."""
    start = 0
    while length_bytes and start + length_bytes < len(data):
        at = start + length_bytes
        start = at + int.from_bytes(data[start:at])
        if start == at or (whole_only and start > len(data)):
            return
        yield data[at:start]


def nal_type(unit: memoryview, codec: VideoCodecContext) -> int:
    """Return the type of a NAL unit of H.264, table 7-1, HEVC, table 7-1, or VVC, table 5."""
    if codec.codec.canonical_name == "vvc":
        return int.from_bytes(unit[1:2]) >> 3
    return unit[0] >> 1 & 0x3F if codec.codec.canonical_name == "hevc" else unit[0] & 0x1F


_SLICES = {"h264": range(1, 6), "hevc": range(32), "vvc": range(12)}


def first_slice(packet: Packet[VideoStream], codec: VideoCodecContext) -> memoryview | None:
    """Return the first NAL unit of a picture; None if it has none, or an earlier one is damaged."""
    kinds = _SLICES.get(codec.codec.canonical_name, range(0))
    units = nal_units(memoryview(packet), nal_length_bytes(codec), whole_only=True)
    return next((unit for unit in units if nal_type(unit, codec) in kinds), None)


def first_slice_type(packet: Packet[VideoStream], codec: VideoCodecContext) -> int | None:
    unit = first_slice(packet, codec)
    return None if unit is None else nal_type(unit, codec)


_H264_IDR, _HEVC_IDR_N_LP = 5, 20
# First bytes of headers of slices (ITU-T H.264, 7.3.3) that begin a picture, and whose `slice_type` is B.
_H264_B = frozenset(
    bytes([0x80 | kind << 7 - bits | rest])
    for kind, bits in ((0b010, 3), (0b00111, 5))  # 1 and 6, in Exp-Golomb
    for rest in range(1 << 7 - bits)
)
# RADL pictures, and these with RASL pictures.
_RADL = {"hevc": range(6, 8), "vvc": range(2, 3)}
_LEADING = {"hevc": range(6, 10), "vvc": range(2, 4)}
_SILENT_PACKETS = frozenset({"hevc", "vvc"})  # whose pictures of type B may be shown in turn
_MPEG_PICTURE, _MPEG4_VOP = b"\0\0\1\0", b"\0\0\1\xb6"
_MPEG_B, _MPEG4_B = 3, 2
_MPEG_SEQUENCE, _MPEG_EXTENSION = b"\0\0\1\xb3", b"\0\0\1\xb5"
_MPEG4_VOL = re.compile(rb"\x00\x00\x01[\x20-\x2f](.*?)(?=\x00\x00\x01|\Z)", re.DOTALL)


def is_closed_gop_start(packet: Packet[VideoStream], codec: VideoCodecContext) -> bool:
    """Return whether exactly the frames decoded before a keyframe of an MP4 are presented before it.

    True for codecs that do not reorder across keyframes, for H.264 IDR pictures, and for HEVC IDR pictures without
    leading pictures; false if only decoding could show it.
    """
    name = codec.codec.canonical_name
    if name == "h264":
        return first_slice_type(packet, codec) == _H264_IDR
    if name == "hevc":
        return first_slice_type(packet, codec) == _HEVC_IDR_N_LP
    return name in {"vp9", "av1"} or codec.codec.intra_only


class TimesOutOfOrderError(FallbackRequired):
    """Frames may be shown in another order than that of their timestamps, and packets do not tell which."""

    def __init__(self) -> None:
        super().__init__("timestamps do not show the order of frames")


def is_shown_early(packet: Packet[VideoStream], codec: VideoCodecContext) -> bool:
    """Return whether a picture states that it is shown before one that was decoded earlier; false if unknown."""
    name = codec.codec.canonical_name
    if name == "h264":
        unit = first_slice(packet, codec)
        return unit is not None and unit[1:2].tobytes() in _H264_B
    if name in _LEADING:
        return first_slice_type(packet, codec) in _LEADING[name]
    if name in {"mpeg1video", "mpeg2video"}:
        head = _after(packet, _MPEG_PICTURE, 2)
        return len(head) > 1 and head[1] >> 3 & 7 == _MPEG_B
    if name == "mpeg4":
        head = _after(packet, _MPEG4_VOP, 1)
        return bool(head) and head[0] >> 6 == _MPEG4_B
    return False


def sequence_header(source: Packet[VideoStream] | bytes, codec: VideoCodecContext) -> bytes:
    """Return what MPEG-1, 2 or 4 states of the size of pictures, and more; empty if it states nothing.

    `source` is a keyframe, or the parameters of the stream.

    Where that changes, as between programmes of a recording, FFmpeg leaves out the last picture before.
    """
    name = codec.codec.canonical_name
    if name not in {"mpeg1video", "mpeg2video", "mpeg4"}:
        return b""
    data = bytes(source)
    if name == "mpeg4":
        found = _MPEG4_VOL.search(data)
        return found[1].rstrip(b"\0") if found else b""
    at = data.find(_MPEG_SEQUENCE)
    if at < 0:
        return b""
    start, extension = at + len(_MPEG_SEQUENCE), data.find(_MPEG_EXTENSION, at)
    size = data[start : start + 3]
    return size + (data[extension : extension + 7] if extension >= 0 else b"")


def is_decodable_leading(packet: Packet[VideoStream], codec: VideoCodecContext) -> bool:
    """Return whether a picture of HEVC or VVC is a leading picture that depends only on its keyframe (RADL)."""
    return first_slice_type(packet, codec) in _RADL.get(codec.codec.canonical_name, ())


def states_reordering(codec: VideoCodecContext) -> bool:
    """Return whether the stream's parameters allow reordering that its packets would not show."""
    return codec.codec.canonical_name in _SILENT_PACKETS and codec.has_b_frames


def check_shown_in_turn(packet: Packet[VideoStream] | None, codec: VideoCodecContext) -> None:
    """Raise TimesOutOfOrderError if a packet may be shown before an earlier one, though timestamps never fall."""
    if states_reordering(codec) or (packet is not None and is_shown_early(packet, codec)):
        raise TimesOutOfOrderError


def _after(packet: Packet[VideoStream], start_code: bytes, size: int) -> bytes:
    """Return up to `size` bytes that follow a start code; empty if there is none."""
    data = bytes(packet)
    at = data.find(start_code)
    return b"" if at < 0 else data[at + len(start_code) : at + len(start_code) + size]


# Types of NAL units in HEVC (ITU-T H.265, table 7-1).
_BLA, _IDR, _CRA = range(16, 19), range(19, 21), 21
_ENDS = (36, 37)  # of a sequence, and of the bitstream
_END_BYTES = 2
_NO_OUTPUT_OF_PRIOR_PICS = 0x40  # in the first byte of a slice header


def is_splice_point(packet: Packet[VideoStream], codec: VideoCodecContext, *, has_ended: bool = False) -> bool:
    """Return whether HEVC has been cut and joined at a keyframe, so that a decoder leaves out announced frames.

    These are the leading pictures of a BLA picture, or of a CRA picture after the end of a sequence (ITU-T H.265,
    8.1.3), and what has not been shown yet at such a CRA picture, or at an IDR picture whose flag
    `no_output_of_prior_pics` is set (C.5.2.2). `has_ended` is whether the packet before it ends a sequence.
    """
    for unit in nal_units(memoryview(packet), nal_length_bytes(codec, only="hevc")):
        kind = unit[0] >> 1 & 0x3F
        has_ended |= kind in _ENDS
        if kind in _SLICES["hevc"]:
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
