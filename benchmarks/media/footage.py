"""Generates any number of different clips from one minute of footage, with GOPs in different orders."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import av
import numpy as np

from benchmarks.media.clips import FPS, BenchClip, copy_packet, made_once

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from av.packet import Packet
    from av.video.stream import VideoStream

GOP_S = 2
_LENGTHS_S = (30, 45)  # as most clips of NExT-QA


def make_footage(folder: Path, *, count: int, width_px: int, height_px: int) -> list[Path]:
    """Make clips of 30 to 45 seconds unless they exist.

    Encoding a minute takes seconds; reordering its GOPs takes a millisecond per clip.

    Args:
        folder: Folder that keeps the clips.
        count: Number of clips; the first ones are the same for any count.
        width_px: 240, 320, 640 or 1920.
        height_px: Height of the frames.

    Returns:
        Paths of H.264 clips in MP4, no two with the same keyframes.
    """
    source = BenchClip(width_px=width_px, height_px=height_px, gop=GOP_S * FPS, length_s=60)
    paths = [folder / source.family / f"{number:05d}.mp4" for number in range(count)]
    missing = [number for number, path in enumerate(paths) if not path.exists()]
    if missing:
        with av.open(str(source.make(folder))) as reader:
            stream = reader.streams.video[0]
            gops = _gops([packet for packet in reader.demux(stream) if packet.size])
            for number in missing:
                made_once(paths[number], partial(_write, stream, gops, np.random.default_rng(number)))
    return paths


def _gops(packets: Sequence[Packet[VideoStream]]) -> list[list[Packet[VideoStream]]]:
    """Split at keyframes; the GOPs are closed, so each can be decoded separately."""
    starts = [number for number, packet in enumerate(packets) if packet.is_keyframe]
    return [list(packets[start:end]) for start, end in zip(starts, [*starts[1:], len(packets)], strict=True)]


def _write(
    source: VideoStream, gops: Sequence[Sequence[Packet[VideoStream]]], rng: np.random.Generator, path: Path
) -> None:
    shortest, longest = (length_s // GOP_S for length_s in _LENGTHS_S)
    chosen = rng.permutation(len(gops))[: rng.integers(shortest, longest + 1)].tolist()
    with av.open(str(path), "w") as writer:
        stream = writer.add_stream_from_template(source)
        for place, number in enumerate(chosen):
            for packet in gops[number]:
                writer.mux(copy_packet(packet, stream, later_s=(place - number) * GOP_S))
