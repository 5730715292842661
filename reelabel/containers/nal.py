"""NAL units of H.264 and HEVC as MP4 and Matroska store them, each after its length (ISO/IEC 14496-15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

_LENGTH_AT = {"h264": 4, "hevc": 21}  # of two bits in avcC and hvcC


def nal_length_bytes(codec: VideoCodecContext, *, only: str = "") -> int | None:
    """Return the size of the length fields of a stream; None if it has none, or is of another codec than `only`."""
    name, extradata = codec.codec.canonical_name, codec.extradata
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
    """Return the type of a NAL unit of H.264, table 7-1, or HEVC, table 7-1."""
    return unit[0] >> 1 & 0x3F if codec.codec.canonical_name == "hevc" else unit[0] & 0x1F


_SLICES = {"h264": range(1, 6), "hevc": range(32)}


def first_slice(packet: Packet[VideoStream], codec: VideoCodecContext) -> memoryview | None:
    """Return the first NAL unit of a picture; None if there is none, or one before it is damaged."""
    kinds = _SLICES.get(codec.codec.canonical_name, range(0))
    units = nal_units(memoryview(packet), nal_length_bytes(codec), whole_only=True)
    return next((unit for unit in units if nal_type(unit, codec) in kinds), None)


def first_slice_type(packet: Packet[VideoStream], codec: VideoCodecContext) -> int | None:
    """Return the type of the first NAL unit of a picture; None as `first_slice`."""
    unit = first_slice(packet, codec)
    return None if unit is None else nal_type(unit, codec)
