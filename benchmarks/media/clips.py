"""Clips of the benchmarks: one minute is encoded, and longer clips repeat its packets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import av
import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt
    from av.packet import Packet
    from av.video.stream import VideoStream

FPS = 30
_MINUTE_S = 60
BITS_PER_S = {240: 120_000, 320: 160_000, 640: 320_000, 1920: 1_200_000}
_OCTAVES = (4, 8, 16, 32, 64)
_PAN_PX = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchClip:
    """One clip: H.264 with B-frames in MP4, with its index at the end."""

    width_px: int
    height_px: int
    gop: int
    length_s: int

    @property
    def name(self) -> str:
        """Name of the clip: `640x360-gop60-600s`."""
        return f"{self.family}-{self.length_s}s"

    @property
    def family(self) -> str:
        """Name that it shares with clips of other lengths: `640x360-gop60`."""
        return f"{self.width_px}x{self.height_px}-gop{self.gop}"

    def make(self, folder: Path) -> Path:
        """Make the clip below `folder` unless it exists; return its path."""
        minute = partial(made_once, folder / f"{self.family}.minute.mp4", self._encode)
        return made_once(folder / f"{self.name}.mp4", lambda path: self._repeat(minute(), path))

    def _encode(self, path: Path) -> None:
        options = {"g": str(self.gop), "keyint_min": str(self.gop), "sc_threshold": "0", "preset": "veryfast"}
        options["x264-params"] = "sliced-threads=0"  # one slice per frame, as is usual in files
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx264", rate=FPS, options=options)
            stream.width, stream.height, stream.pix_fmt = self.width_px, self.height_px, "yuv420p"
            stream.bit_rate = BITS_PER_S[self.width_px]
            stream.codec_context.max_b_frames = 2
            for image in _pictures(self.width_px, self.height_px):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            container.mux(stream.encode())

    def _repeat(self, minute: Path, path: Path) -> None:
        """Repeat the packets of the minute, a minute later each time, until the clip is long enough."""
        with av.open(str(minute)) as reader, av.open(str(path), "w") as writer:
            source = reader.streams.video[0]
            target = writer.add_stream_from_template(source)
            packets = [packet for packet in reader.demux(source) if packet.size]
            for number in range(self.length_s * FPS):
                later, place = divmod(number, len(packets))
                writer.mux(copy_packet(packets[place], target, later_s=later * _MINUTE_S))


def made_once(path: Path, write: Callable[[Path], object]) -> Path:
    """Return a file, which is written unless it exists, under another name until it is complete."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".part{path.suffix}")
        write(unfinished)
        unfinished.replace(path)
    return path


def bench_clips(lengths_s: tuple[int, ...]) -> list[BenchClip]:
    """Return the clips of some lengths: two sizes, two GOP lengths."""
    return [
        BenchClip(width_px=width, height_px=height, gop=gop, length_s=length_s)
        for width, height in ((640, 360), (1920, 1080))
        for gop in (60, 250)
        for length_s in lengths_s
    ]


def copy_packet(packet: Packet[VideoStream], stream: VideoStream, *, later_s: int) -> Packet[VideoStream]:
    """Copy a packet for the stream of another file, `later_s` seconds later."""
    copy: Packet[VideoStream] = av.Packet(bytes(packet))  # type: ignore[assignment]
    assert packet.pts is not None
    assert packet.dts is not None
    later = round(later_s / packet.time_base)
    copy.pts, copy.dts, copy.duration = packet.pts + later, packet.dts + later, packet.duration
    copy.time_base, copy.is_keyframe, copy.stream = packet.time_base, packet.is_keyframe, stream
    return copy


def _pictures(width_px: int, height_px: int) -> Iterator[npt.NDArray[np.uint8]]:
    """Pan over a landscape of octave noise, whose spectrum is like that of natural pictures."""
    rng = np.random.default_rng(0)
    reach = _PAN_PX * 200
    size = (width_px + reach, height_px + reach)
    canvas = np.zeros((size[1], size[0], 3))
    for cells in _OCTAVES:
        noise = rng.integers(0, 256, (cells * size[1] // size[0] + 1, cells, 3), np.uint8)
        canvas += (np.asarray(Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC), float) - 128) * 4 / cells
    landscape = np.clip(canvas / np.abs(canvas).max() * 127 + 128, 0, 255).astype(np.uint8)
    for number in range(_MINUTE_S * FPS):
        left = abs(number * _PAN_PX % (2 * reach) - reach)
        top = abs(number % (2 * reach) - reach)
        picture = landscape[top : top + height_px, left : left + width_px].copy()
        square = number * 7 % (width_px - 80)
        picture[40:120, square : square + 80] = (number % 256, 255 - number % 256, 128)
        yield picture
