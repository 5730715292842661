"""`reelabel bench decode`: milliseconds from a file to sixteen frames.

Uniform sampling and demux-and-seek leave frames at their own size, as loaders do; the row of ours
to hold against them does, too. The limit converts as the row above it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.loaders import (
    SAMPLING,
    UNIFORM,
    FileParts,
    HeldParts,
    Limit,
    demux_and_seek,
    torchcodec_loads,
    uniform_with_opencv,
    uniform_with_pyav,
    uniform_with_torchcodec,
)
from tasks.video.extract import extract_by_ranges, extract_keyframes
from tasks.video.limits import Limits
from tasks.video.pool import DecodePool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.clips import BenchClip

OPENCV = "uniform 16, OpenCV"
TORCHCODEC = "uniform 16, torchcodec (approximate)"
PYAV = "uniform 16, PyAV"
LOSSLESS = "uniform 16, ours"
DEMUX = "keyframes, demux and seek"
NATIVE = "keyframes, ours"
THREADED = "the same, two threads"
OURS = "keyframes, ours, at the model's size"
INDEXED = "the same, index cached"
LIMIT = "the same, picked packets alone (limit)"
PASSING = "passing frames out of a child"
ROWS = (OPENCV, TORCHCODEC, PYAV, LOSSLESS, DEMUX, NATIVE, THREADED, OURS, INDEXED, LIMIT, PASSING)

_UNIFORM = (OPENCV, TORCHCODEC, PYAV, LOSSLESS)
_UNIFORM_ONCE_FROM_S = 600
_LONGEST_UNIFORM_S = 600
_POOL_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRow:
    """Median milliseconds of each way on one clip; ways that were not tried are absent."""

    clip: BenchClip
    median_ms: Mapping[str, float]
    rounds: int

    def ratio(self, way: str, to: str) -> float:
        """Say how many times as long one way takes as another."""
        return self.median_ms[way] / self.median_ms[to]


def measure_decode(clips: Sequence[BenchClip], folder: Path, *, rounds: int) -> Iterator[DecodeRow]:
    """Measure every way on each clip, the ways in turn within a round.

    Args:
        clips: What to measure on.
        folder: Where clips are made once.
        rounds: How often each way is taken; uniform sampling of long clips once.
    """
    # Uniform sampling decodes most of a file: on one of the longest clips, once, is enough.
    longest = max(clips, key=lambda clip: (clip.length_s, -clip.width_px, -clip.gop))
    with DecodePool(processes=1, timeout_s=_POOL_TIMEOUT_S, memory_mib=4096) as pool:
        for clip in clips:
            path = clip.make(folder)
            ways = _ways(path, pool)
            with_uniform = clip.length_s <= _LONGEST_UNIFORM_S or clip is longest
            once = {
                way: [_time_ms(ways[way])]
                for way in _UNIFORM
                if way in ways and with_uniform and clip.length_s >= _UNIFORM_ONCE_FROM_S
            }
            repeated = [way for way in ways if with_uniform or way not in _UNIFORM]
            times = once | _in_turn({way: ways[way] for way in repeated if way not in once}, rounds)
            yield DecodeRow(clip=clip, median_ms=_medians(times), rounds=rounds)


def _ways(path: Path, pool: DecodePool) -> dict[str, Callable[[], object]]:
    source = FileParts(path)
    _, index = extract_by_ranges(source, sampling=SAMPLING, limits=Limits())
    limit = Limit(path)
    held = HeldParts(source.size_bytes, limit.extents)
    ways: dict[str, Callable[[], object]] = {}
    if find_spec("cv2"):
        ways[OPENCV] = lambda: uniform_with_opencv(path)
    if torchcodec_loads():
        ways[TORCHCODEC] = lambda: uniform_with_torchcodec(path)
    return ways | {
        PYAV: lambda: uniform_with_pyav(path),
        LOSSLESS: lambda: extract_keyframes(path, sampling=UNIFORM, limits=Limits(), native=True),
        DEMUX: lambda: demux_and_seek(path),
        NATIVE: lambda: extract_keyframes(path, sampling=SAMPLING, limits=Limits(), native=True),
        THREADED: lambda: extract_keyframes(path, sampling=SAMPLING, limits=Limits(), native=True, threads=2),
        OURS: lambda: extract_keyframes(path, sampling=SAMPLING, limits=Limits()),
        INDEXED: lambda: extract_by_ranges(held, sampling=SAMPLING, limits=Limits(), known=index),
        LIMIT: limit,
        PASSING: lambda: pool.extract(path, sampling=SAMPLING, limits=Limits()),
    }


def _in_turn(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    for call in ways.values():
        call()  # files into the page cache, libraries into memory
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, call in ways.items():
            times[way].append(_time_ms(call))
    return times


def _medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    medians = {way: median(times[way]) for way in ROWS if way in times}
    # Within a round the child does what the row above does, and hands its frames over.
    medians[PASSING] = median(child - here for child, here in zip(times[PASSING], times[OURS], strict=True))
    return medians


def _time_ms(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3
