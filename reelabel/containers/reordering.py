"""What packets themselves say of the order in which their pictures are shown, whatever their timestamps say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.containers.nal import first_slice, first_slice_type
from reelabel.errors import FallbackRequired

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

_H264_IDR, _HEVC_IDR_N_LP = 5, 20
# First bytes of headers of slices (ITU-T H.264, 7.3.3) that begin a picture, and whose `slice_type` is B.
_H264_B = frozenset(
    bytes([0x80 | kind << 7 - bits | rest])
    for kind, bits in ((0b010, 3), (0b00111, 5))  # 1 and 6, in Exp-Golomb
    for rest in range(1 << 7 - bits)
)
_HEVC_RADL, _HEVC_LEADING = range(6, 8), range(6, 10)  # RADL_N to RASL_R
_SILENT_PACKETS = frozenset({"hevc", "vvc"})  # whose pictures of type B may be shown in turn
_MPEG_PICTURE, _MPEG4_VOP = b"\0\0\1\0", b"\0\0\1\xb6"
_MPEG_B, _MPEG4_B = 3, 2


def keeps_decode_position(packet: Packet[VideoStream], codec: VideoCodecContext) -> bool:
    """Return whether exactly the frames decoded before a keyframe of an MP4 are presented before it.

    True for codecs that do not reorder across keyframes, for H.264 IDR pictures, and for HEVC IDR pictures without
    leading pictures; false if only decoding could tell.
    """
    name = codec.codec.canonical_name
    if name == "h264":
        return first_slice_type(packet, codec) == _H264_IDR
    if name == "hevc":
        return first_slice_type(packet, codec) == _HEVC_IDR_N_LP
    return name in {"vp9", "av1"} or codec.codec.intra_only


class TimesOutOfOrderError(FallbackRequired):
    """Frames may be shown in another order than that of their timestamps, of which the packets show nothing."""

    def __init__(self) -> None:
        """Create the error with its reason."""
        super().__init__("timestamps do not show the order of frames")


def is_shown_early(packet: Packet[VideoStream], codec: VideoCodecContext) -> bool:
    """Return whether a picture says that it is shown before one that is decoded earlier; false if it does not say."""
    name = codec.codec.canonical_name
    if name == "h264":
        unit = first_slice(packet, codec)
        return unit is not None and unit[1:2].tobytes() in _H264_B
    if name == "hevc":
        return first_slice_type(packet, codec) in _HEVC_LEADING
    if name in {"mpeg1video", "mpeg2video"}:
        head = _after(packet, _MPEG_PICTURE, 2)
        return len(head) > 1 and head[1] >> 3 & 7 == _MPEG_B
    if name == "mpeg4":
        head = _after(packet, _MPEG4_VOP, 1)
        return bool(head) and head[0] >> 6 == _MPEG4_B
    return False


def is_decodable_leading(packet: Packet[VideoStream], codec: VideoCodecContext) -> bool:
    """Return whether a picture of HEVC is shown before the keyframe that precedes it, and depends on it alone."""
    return codec.codec.canonical_name == "hevc" and first_slice_type(packet, codec) in _HEVC_RADL


def states_reordering(codec: VideoCodecContext) -> bool:
    """Return whether the parameters of a stream whose packets do not tell say that its pictures may be reordered."""
    return codec.codec.canonical_name in _SILENT_PACKETS and codec.has_b_frames


def require_shown_in_turn(packet: Packet[VideoStream] | None, codec: VideoCodecContext) -> None:
    """Check a packet of a video whose timestamps never fall: the decoder must not show it before an earlier one.

    Raises:
        TimesOutOfOrderError: It may, as the packet or the parameters of the decoder say.
    """
    if states_reordering(codec) or (packet is not None and is_shown_early(packet, codec)):
        raise TimesOutOfOrderError


def _after(packet: Packet[VideoStream], start_code: bytes, size: int) -> bytes:
    """Return bytes that follow a start code; empty if there is none."""
    data = bytes(packet)
    at = data.find(start_code)
    return b"" if at < 0 else data[at + len(start_code) : at + len(start_code) + size]
