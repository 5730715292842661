"""Decide whether a keyframe's position in decode order is also its position in presentation order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

_H264_SLICES = range(1, 6)
_H264_IDR = 5
_HEVC_SLICES = range(32)
_HEVC_IDR_N_LP = 20


def keeps_decode_position(packet: Packet[VideoStream], codec: VideoCodecContext) -> bool:
    """Return whether exactly the frames decoded before a keyframe are presented before it.

    True for codecs that do not reorder across keyframes, for H.264 IDR pictures, and for HEVC IDR pictures without
    leading pictures; false if only decoding could tell.

    Args:
        packet: The keyframe's packet, from an MP4.
        codec: The stream's codec context.
    """
    name = codec.codec.canonical_name
    if name == "h264":
        return _first_slice_type(packet, _h264_length_bytes(codec.extradata), kinds=_H264_SLICES, shift=0) == _H264_IDR
    if name == "hevc":
        length_bytes = _hevc_length_bytes(codec.extradata)
        return _first_slice_type(packet, length_bytes, kinds=_HEVC_SLICES, shift=1) == _HEVC_IDR_N_LP
    return name in {"vp9", "av1"} or codec.codec.intra_only


def _h264_length_bytes(extradata: bytes | None) -> int | None:
    """Return the size of the NAL unit length fields (ISO/IEC 14496-15, avcC)."""
    return (extradata[4] & 3) + 1 if extradata and len(extradata) > 4 and extradata[0] == 1 else None  # noqa: PLR2004


def _hevc_length_bytes(extradata: bytes | None) -> int | None:
    """Return the size of the NAL unit length fields (ISO/IEC 14496-15, hvcC)."""
    return (extradata[21] & 3) + 1 if extradata and len(extradata) > 21 and extradata[0] == 1 else None  # noqa: PLR2004


def _first_slice_type(packet: Packet[VideoStream], length_bytes: int | None, *, kinds: range, shift: int) -> int | None:
    """Return the type of the first NAL unit that is a slice; None if there is none."""
    data, start = memoryview(packet), 0
    while length_bytes is not None and start + length_bytes < len(data):
        length = int.from_bytes(data[start : start + length_bytes])
        start += length_bytes
        kind = (data[start] >> shift) & (0x3F if shift else 0x1F)
        if kind in kinds:
            return kind
        start += length
    return None
