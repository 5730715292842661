"""Decoding of single packets, and checks that a keyframe decoded by itself equals that of a linear decode."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING

import av
import av.error
from av.video.frame import PictureType, VideoFrame

from reelabel.containers.packet_info import first_slice, first_slice_type
from reelabel.containers.stream_properties import decoder_limit_options
from reelabel.errors import FallbackRequired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

    from reelabel.options import Limits


# How a decoder conceals the damage depends on earlier frames.
DAMAGED = "a keyframe is damaged"
# First bytes of headers of slices (ITU-T H.264, 7.3.3) that begin a picture, and whose `slice_type` is P or B.
_H264_INTER = frozenset(
    bytes([0x80 | kind << 7 - bits | rest])
    for kind, bits in ((0b1, 1), (0b010, 3), (0b00110, 5), (0b00111, 5))  # 0, 1, 5 and 6, in Exp-Golomb
    for rest in range(1 << 7 - bits)
)
_HEVC_IRAP = range(16, 24)


def is_flagged_wrongly(packet: Packet[VideoStream], codec: VideoCodecContext) -> bool:
    """Return whether a packet of H.264 or HEVC, flagged as a keyframe, holds no keyframe."""
    name = codec.codec.canonical_name
    if name == "hevc":
        kind = first_slice_type(packet, codec)
        return kind is not None and kind not in _HEVC_IRAP
    if name != "h264":
        return False
    unit = first_slice(packet, codec)
    return unit is not None and unit[1:2].tobytes() in _H264_INTER


_START = b"\xff\xd8"
_QUANTIZATION, _HUFFMAN, _SCAN = 0xDB, 0xC4, 0xDA
_FRAMES = {0xC0, 0xC1, 0xC2}  # baseline, extended and progressive DCT
_COUNTS = 16  # numbers of Huffman codes, by code length


def has_jpeg_tables(picture: memoryview) -> bool:
    """Return whether all tables used by the first scan are defined before it in the same image.

    A decoder falls back to tables of earlier images, which differ in a linear decode.
    """
    quantization: set[int] = set()
    huffman: set[int] = set()
    used: set[int] | None = None
    for marker, segment in _segments(picture):
        if marker == _QUANTIZATION:
            quantization |= _quantization_tables(segment)
        elif marker == _HUFFMAN:
            huffman |= _huffman_tables(segment)
        elif marker in _FRAMES:
            used = {segment[place] for place in range(8, len(segment), 3)}
        elif marker == _SCAN and used is not None:
            return used <= quantization and _scan_tables(segment) <= huffman
    return False


def _segments(picture: memoryview) -> Iterator[tuple[int, memoryview]]:
    start = len(_START) if picture[:2] == _START else len(picture)
    while start + 4 <= len(picture) and picture[start] == 0xFF:  # noqa: PLR2004
        end = start + 2 + int.from_bytes(picture[start + 2 : start + 4])
        yield picture[start + 1], picture[start + 4 : end]
        start = end


def _quantization_tables(segment: memoryview) -> set[int]:
    tables, start = set(), 0
    while start < len(segment):
        precision, table = divmod(segment[start], 16)
        start += 1 + 64 * (2 if precision else 1)
        if start <= len(segment):
            tables.add(table)
    return tables


def _huffman_tables(segment: memoryview) -> set[int]:
    """Return the tables defined in a segment, as class and number in one byte."""
    tables, start = set(), 0
    while start + _COUNTS < len(segment):
        table, counts = segment[start], segment[start + 1 : start + 1 + _COUNTS]
        start += 1 + _COUNTS + sum(counts)
        if start <= len(segment):
            tables.add(table)
    return tables


def _scan_tables(segment: memoryview) -> set[int]:
    """Return the tables used by a scan: class 0 for DC, and class 1 for AC, which a DC-only scan does not use."""
    components = 2 * segment[0] if segment else 0
    selectors = bytes(segment[2 : 1 + components : 2])
    has_ac = any(segment[2 + components : 3 + components])
    ac = {0x10 | selector & 15 for selector in selectors} if has_ac else set()
    return {selector >> 4 for selector in selectors} | ac


_PRIMINGS = 2


def check_keyframe(frame: VideoFrame) -> None:
    """Raise FallbackRequired if a frame is no keyframe, or damaged: it may depend on earlier packets."""
    if not frame.key_frame or frame.pict_type != PictureType.I:
        raise FallbackRequired("a packet is flagged as a keyframe, but its frame is not", index_is_wrong=True)
    if frame.is_corrupt:
        raise FallbackRequired(DAMAGED, linear_only=True)


def prime_mpeg4_decoder(codec: VideoCodecContext, first: Packet[VideoStream]) -> None:
    """Decode the first packet repeatedly, so that FFmpeg's MPEG-4 decoder settles its bug workarounds.

    The decoder attributes missing padding to a faulty encoder until intact frames lower its `padding_bug_score`, and
    until then does not report some damage.
    """
    if codec.name == "mpeg4":
        for _ in range(_PRIMINGS):
            with suppress(FallbackRequired):
                decode_single_packet(codec, first)


def decode_single_packet(codec: VideoCodecContext, packet: Packet[VideoStream]) -> VideoFrame:
    """Decode a single packet, independently of all others.

    Raises FallbackRequired if the result is not exactly one intact keyframe with the packet's PTS, or the packet is a
    JPEG frame that relies on the tables of earlier ones.
    """
    if codec.name == "mjpeg" and not has_jpeg_tables(memoryview(packet)):
        raise FallbackRequired("a JPEG frame lacks its own tables")
    try:
        frames = codec.decode(packet) + codec.decode(None)
    except MemoryError:
        raise
    except av.error.FFmpegError:
        raise FallbackRequired(DAMAGED, linear_only=True) from None
    finally:
        codec.flush_buffers()
    if len(frames) != 1 or frames[0].pts != packet.pts:
        raise FallbackRequired("a keyframe's packet does not decode to its frame", index_is_wrong=True)
    check_keyframe(frames[0])
    return frames[0]


# For these codecs, a keyframe's packet and the decoder's parameters determine the frame. Other decoders, such as
# MPEG-4's, also depend on earlier packets.
_SELF_CONTAINED = frozenset({"h264", "hevc", "vp8", "vp9", "av1"})
_STRICT_OPTIONS = {"err_detect": "explode"}
_THREAD_BYTES = 128 * 1024**2  # a stack, and what the allocator reserves of the address space for a thread
_HELD_FRAMES = 20  # that a decoder may refer to, decode and hand over
_PIXEL_BYTES = 3  # of most formats at most
_SHARE = 2  # the other half is for the frames that are kept, the file and the interpreter


def can_copy(codec: VideoCodecContext) -> bool:
    """Return whether a decoder with the same parameters decodes a keyframe's packet to the same frame."""
    return codec.codec.canonical_name in _SELF_CONTAINED


def copy_decoder(codec: VideoCodecContext, limits: Limits) -> VideoCodecContext:
    """Create a decoder with the parameters of one that has decoded nothing; it fails on damage, as if opened strictly.

    The first frame may change the parameters of the one that decodes it.
    """
    copy: VideoCodecContext = av.CodecContext.create(codec.codec.name, "r")  # type: ignore[assignment]
    copy.extradata = codec.extradata or None
    copy.codec_tag = codec.codec_tag
    copy.width, copy.height = codec.width, codec.height
    if codec.pix_fmt is not None:
        copy.pix_fmt = codec.pix_fmt
    copy.bits_per_coded_sample = codec.bits_per_coded_sample
    copy.color_range, copy.colorspace = int(codec.color_range), int(codec.colorspace)
    copy.color_primaries, copy.color_trc = int(codec.color_primaries), int(codec.color_trc)
    copy.field_order = int(codec.field_order)
    copy.thread_type, copy.thread_count = "NONE", 1
    copy.options = decoder_limit_options(limits) | _STRICT_OPTIONS
    return copy


def threads_that_fit(wanted: int, codec: VideoCodecContext) -> int:
    """Return how many of the wanted threads half of the process's address space suffices for, at least one."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes == resource.RLIM_INFINITY:
        return wanted
    needed_bytes = _THREAD_BYTES + _HELD_FRAMES * _PIXEL_BYTES * codec.width * codec.height
    return max(1, min(wanted, limit_bytes // _SHARE // needed_bytes))
