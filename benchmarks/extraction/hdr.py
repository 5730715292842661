"""What it costs to tone-map HDR frames to SDR."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import av
import numpy as np
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc

from benchmarks.clock import time_ms
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FRAMES = 16
_SIZE = 1920, 1080
_TRANSFERS = {"HLG": ColorTrc.ARIB_STD_B67, "PQ": ColorTrc.SMPTE2084}
_ENCODER = {"preset": "ultrafast", "x265-params": "keyint=1:log-level=error"}
_SHOWN = Sampling(num_frames=FRAMES, max_pixels=602_112, size_multiple_px=28)
_DECODED = Sampling(num_frames=FRAMES, max_pixels=602_112, size_multiple_px=28, hdr="as_decoded")


@dataclass(frozen=True, slots=True, kw_only=True)
class HdrRow:
    """Median milliseconds of keyframes at the model's size, with their tone mapping and without."""

    transfer: str
    tone_mapped_ms: float
    as_decoded_ms: float

    @property
    def per_frame_ms(self) -> float:
        """Milliseconds that tone mapping adds to a frame."""
        return (self.tone_mapped_ms - self.as_decoded_ms) / FRAMES


def measure_hdr(folder: Path, *, rounds: int, size: tuple[int, int] = _SIZE) -> Iterator[HdrRow]:
    """Time the keyframes of a clip of each transfer function, in turns.

    Args:
        folder: Folder that keeps the clips.
        rounds: Repetitions of each.
        size: Width and height of the clips, in pixels.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for transfer, trc in _TRANSFERS.items():
        path = folder / f"hdr-{transfer.lower()}-{size[1]}.mp4"
        if not path.exists():
            _encode(path, trc, size)
        calls = [partial(extract_local, path, sampling=sampling) for sampling in (_SHOWN, _DECODED)]
        times = [[time_ms(call) for call in calls] for _ in range(rounds + 1)][1:]  # the first loads libraries
        shown, decoded = (median(column) for column in zip(*times, strict=True))
        yield HdrRow(transfer=transfer, tone_mapped_ms=shown, as_decoded_ms=decoded)


def _encode(path: Path, trc: ColorTrc, size: tuple[int, int]) -> None:
    """Encode gradients of all brightnesses that move, each frame a keyframe."""
    width, height = size
    rows, columns = np.mgrid[0:height, 0:width]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx265", rate=1, options=_ENCODER)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p10le"
        codec = stream.codec_context
        codec.color_primaries, codec.color_trc = ColorPrimaries.BT2020, trc
        codec.colorspace, codec.color_range = Colorspace.BT2020, ColorRange.MPEG
        for number in range(FRAMES):
            pixels = np.stack([columns + 50 * number, rows, columns + rows], -1) * 32
            frame = av.VideoFrame.from_ndarray(pixels.astype(np.uint16), format="rgb48le")
            yuv = frame.reformat(format="yuv420p10le", dst_colorspace=Colorspace.BT2020)
            yuv.color_primaries, yuv.color_trc = ColorPrimaries.BT2020, trc
            container.mux(stream.encode(yuv))
        container.mux(stream.encode(None))
