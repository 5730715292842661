"""Small files that demand excessive resources."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

import av
from av.video.stream import VideoStream

from benchmarks.media.boxes import replace_boxes
from benchmarks.media.matrix import Cell
from tests.timestamps import clusters_days_apart, frames_before_zero, one_frame_in_years

if TYPE_CHECKING:
    from collections.abc import Callable

_MILLION = 1_000_000
# A baseline JPEG's start of frame: marker, length, 8 bits; then height and width.
_JPEG_SIZE = bytes.fromhex("ffc0001108")
_HUGE_SIDE_PX = 30_000


def claim_of_huge_pictures() -> bytes:
    """Make a Motion JPEG of 96x64 whose second half claims 30000x30000 pixels."""
    data = bytearray(Cell("avi", "mjpeg").make())
    at = len(data) // 2
    while (at := data.find(_JPEG_SIZE, at + 1)) > 0:
        struct.pack_into(">HH", data, at + len(_JPEG_SIZE), _HUGE_SIDE_PX, _HUGE_SIDE_PX)
    return bytes(data)


def flat_pictures_of_16k() -> bytes:
    """Make a million flat pictures of 15360x8640, in a few megabytes."""
    return _repeated(_one_flat_picture("png", "gray", width_px=15_360, height_px=8_640), count=_MILLION)


def flat_pictures_at_the_limit() -> bytes:
    """Make a million flat pictures of 7680x8320: each is within the pixel limit."""
    return _repeated(_one_flat_picture("libx264", "yuv420p", width_px=7_680, height_px=8_320), count=_MILLION)


def many_tiny_pictures() -> bytes:
    """Make a million keyframes of 16x16 that share the same few bytes."""
    return _repeated(_one_flat_picture("libx264", "yuv420p", width_px=16, height_px=16), count=_MILLION)


def index_of_many_entries() -> bytes:
    """Make an index that claims 2,147,483,647 samples of one size, which needs no table."""
    sizes = struct.pack(">III", 0, 20, 2**31 - 1)
    times = struct.pack(">IIII", 0, 1, 2**31 - 1, 1)
    return replace_boxes(Cell("mp4", "h264").make(), {b"stsz": sizes, b"stts": times})


def years_of_one_picture() -> bytes:
    """Make forty frames that last a day each."""
    times = struct.pack(">IIII", 0, 1, 40, 2**30)
    return replace_boxes(Cell("mp4", "h264").make(), {b"stts": times, b"edts": None})


BOMBS: dict[str, Callable[[], bytes]] = {
    "a claim of 30000x30000": claim_of_huge_pictures,
    "a flat stream of 16K pictures": flat_pictures_of_16k,
    "a flat stream within the pixel limit": flat_pictures_at_the_limit,
    "a million tiny pictures": many_tiny_pictures,
    "an index of 2,147,483,647 entries": index_of_many_entries,
    "frames that last for days": years_of_one_picture,
    "clusters that are days apart": clusters_days_apart,
    "frames before zero and a year later": frames_before_zero,
    "a frame every four months": one_frame_in_years,
}


def _one_flat_picture(encoder: str, pix_fmt: str, *, width_px: int, height_px: int) -> bytes:
    target = io.BytesIO()
    with av.open(target, "w", format="mp4", options={"fflags": "bitexact"}) as container:
        stream = container.add_stream(encoder, rate=25)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = width_px, height_px, pix_fmt
        # More threads would keep more pictures in memory.
        stream.codec_context.thread_count = 1
        stream.codec_context.options = {"preset": "ultrafast"} if encoder == "libx264" else {}
        frame = av.VideoFrame(width_px, height_px, pix_fmt)
        for plane in frame.planes:
            plane.update(bytes([128]) * plane.buffer_size)
        frame.pts = 0
        container.mux(stream.encode(frame) + stream.encode())
    return target.getvalue()


def _repeated(data: bytes, *, count: int) -> bytes:
    """Repeat the only sample of an MP4 file: every chunk of its index starts at the same byte."""
    sizes = data[data.index(b"stsz") + 4 :]
    (sample_bytes,) = struct.unpack_from(">I", sizes, 12)
    (offset,) = struct.unpack_from(">I", data, data.index(b"stco") + 12)
    changed = {
        b"stts": struct.pack(">IIII", 0, 1, count, 512),
        b"stsz": struct.pack(">III", 0, sample_bytes, count),
        b"stsc": struct.pack(">IIIII", 0, 1, 1, 1, 1),
        b"stco": struct.pack(">II", 0, count) + struct.pack(">I", offset) * count,
        b"stss": None,
        b"ctts": None,
        b"edts": None,
    }
    return replace_boxes(data, changed)
