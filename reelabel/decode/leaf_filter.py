"""Pictures that no later picture refers to, which a decoder need not decode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.containers.nal import nal_length_bytes, nal_units

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

# Types of NAL units in H.264 (ITU-T H.264, table 7-1): slices, SEI, and those without meaning for a decoder.
_H264_STATELESS = frozenset({1, 2, 3, 4, 6, 9, 10, 11, 12})
# Types of NAL units in HEVC (ITU-T H.265, table 7-1): sub-layer non-reference pictures, and those without meaning for
# other pictures.
_HEVC_LEAVES = frozenset({0, 2, 4, 6, 8})  # TRAIL_N, TSA_N, STSA_N, RADL_N, RASL_N
_HEVC_STATELESS = frozenset({35, 38, 40})  # access unit delimiter, filler data, suffix SEI
_START_CODE = b"\0\0\1"  # FFmpeg looks for it in any packet


class LeafFilter:
    """Keeps a decoder from decoding pictures of one run that are neither wanted nor referred to.

    In H.264, FFmpeg keeps no picture whose `nal_ref_idc` is 0 as a reference, whatever later ones say (7.4.1), so that
    it may skip it. In HEVC, no picture of the same temporal sub-layer refers to a sub-layer non-reference picture
    (7.4.2.2), and there are none above the highest sub-layer; if a stream lies, the decoder misses a reference, and
    reports the picture that refers to it as damaged.

    Attributes:
        has_left_out: Whether packets have been left out whose absence the decoder would notice in a stream that lies.
        is_skipping: Whether the decoder may skip the packet that was admitted last.
    """

    def __init__(self, codec: VideoCodecContext) -> None:
        """Read the stream's configuration; without one, as in an MP4 or Matroska file, every packet is decoded."""
        self._codec = codec
        self._h264_length_bytes = nal_length_bytes(codec, only="h264")
        self._hevc_length_bytes = nal_length_bytes(codec, only="hevc")
        # The number of sub-layers (ISO/IEC 14496-15, 8.3.2.1) is 0 where it is unknown.
        self._highest = max(0, ((codec.extradata or b"")[21] >> 3 & 7) - 1) if self._hevc_length_bytes else 0
        self.has_left_out = self.is_skipping = False

    def admits(self, packet: Packet[VideoStream], *, is_wanted: bool) -> bool:
        """Return whether to give a packet to the decoder, which has been told what to skip of it."""
        if any(packet.iter_sidedata()):  # it may bring another configuration
            self._h264_length_bytes = self._hevc_length_bytes = None
            self._codec.skip_frame = "DEFAULT"
            self.is_skipping = False
        if self._h264_length_bytes:
            self.is_skipping = not is_wanted and _is_safe_to_skip(packet, self._h264_length_bytes)
            self._codec.skip_frame = "NONREF" if self.is_skipping else "DEFAULT"
            return True
        is_leaf = not is_wanted and self._is_hevc_leaf(packet)
        self.has_left_out |= is_leaf
        return not is_leaf

    def _is_hevc_leaf(self, packet: Packet[VideoStream]) -> bool:
        if self._hevc_length_bytes is None:
            return False
        headers = _nal_headers(memoryview(packet), self._hevc_length_bytes)
        pictures = [header for header in headers if header >> 9 not in _HEVC_STATELESS]
        are_highest = {header & 0x1FF for header in pictures} == {self._highest + 1}  # and of the base layer
        return are_highest and all(header >> 9 in _HEVC_LEAVES for header in pictures)


def _is_safe_to_skip(packet: Packet[VideoStream], length_bytes: int) -> bool:
    """Return whether FFmpeg would skip nothing but slices: it passes over any NAL unit whose `nal_ref_idc` is 0."""
    kinds = [header >> 8 for header in _nal_headers(memoryview(packet), length_bytes)]
    return all(kind & 0x60 or kind & 0x1F in _H264_STATELESS for kind in kinds)


def _nal_headers(data: memoryview, length_bytes: int) -> list[int]:
    """Return the first two bytes of each NAL unit as one number, and 0, as of no picture, for what cannot be read."""
    units = list(nal_units(data, length_bytes))
    headers = [int.from_bytes(unit[:2]) for unit in units]
    is_read = sum(length_bytes + len(unit) for unit in units) == len(data)
    return headers if is_read and not any(_START_CODE in bytes(unit) for unit in units) else [*headers, 0]
