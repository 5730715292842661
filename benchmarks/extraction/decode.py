"""Milliseconds from a file to sixteen frames.

Uniform sampling and demux-and-seek keep the native frame size, as other loaders do, and so does the row of ours
to compare with them. The limit scales to the model's size, as the row above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.clock import time_ms
from benchmarks.extraction.loaders import (
    SAMPLING,
    UNIFORM_SAMPLING,
    FileParts,
    HeldParts,
    Limit,
    demux_and_seek,
    uniform_with_opencv,
    uniform_with_pyav,
)
from benchmarks.extraction.locked import lock_ratio, one_process_pools, replacement_ms
from reelabel.extract import extract_local, extract_ranges
from reelabel.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.media.clips import BenchClip
    from reelabel.pool.decode_pool import DecodePool

OPENCV = "uniform 16, OpenCV"
PYAV = "uniform 16, PyAV"
UNIFORM = "uniform 16, ours"
DEMUX = "keyframes, demux and seek"
NATIVE = "keyframes, ours"
THREADED = "keyframes, ours, two threads"
OURS = "keyframes, ours, at the model's size"
INDEXED = "the same, index cached"
LIMIT = "the same, picked packets alone (limit)"
PASSING = "passing frames out of a child process"
METHODS = (OPENCV, PYAV, UNIFORM, DEMUX, NATIVE, THREADED, OURS, INDEXED, LIMIT, PASSING)

_UNIFORM_METHODS = (OPENCV, PYAV, UNIFORM)
_UNIFORM_ONCE_FROM_S = 600
_LONGEST_UNIFORM_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRow:
    """Median milliseconds per method on one clip; methods that were not measured are absent.

    Attributes:
        locked: How many times as long a locked process takes as one that has only limits.
        replaced_ms: Milliseconds more that a video takes in a process of its own.
    """

    clip: BenchClip
    median_ms: Mapping[str, float]
    locked: float
    replaced_ms: float
    rounds: int

    def ratio(self, method: str, to: str) -> float:
        """Return how many times as long one method takes as another."""
        return self.median_ms[method] / self.median_ms[to]


def measure_decode(clips: Sequence[BenchClip], folder: Path, *, rounds: int) -> Iterator[DecodeRow]:
    """Measure every method on each clip, interleaving the methods within a round.

    Args:
        clips: Clips to measure.
        folder: Folder that keeps the clips.
        rounds: Repetitions of each method; uniform sampling of long clips is measured once.
    """
    # Uniform sampling decodes most of a file: measuring one of the longest clips once is enough.
    longest = max(clips, key=lambda clip: (clip.length_s, -clip.width_px, -clip.gop))
    with one_process_pools() as pools:
        for clip in clips:
            path = clip.make(folder)
            calls = _calls(path, pools.locked)
            with_uniform = clip.length_s <= _LONGEST_UNIFORM_S or clip is longest
            once = {
                method: [time_ms(calls[method])]
                for method in _UNIFORM_METHODS
                if method in calls and with_uniform and clip.length_s >= _UNIFORM_ONCE_FROM_S
            }
            repeated = [method for method in calls if with_uniform or method not in _UNIFORM_METHODS]
            times = once | _interleave({method: calls[method] for method in repeated if method not in once}, rounds)
            work = partial(_extract, path)
            yield DecodeRow(
                clip=clip,
                median_ms=_medians(times),
                locked=lock_ratio(pools, work, rounds=rounds),
                replaced_ms=replacement_ms(pools, work, rounds=rounds),
                rounds=rounds,
            )


def _calls(path: Path, pool: DecodePool) -> dict[str, Callable[[], object]]:
    source = FileParts(path)
    _, index = extract_ranges(source, sampling=SAMPLING, limits=Limits())
    limit = Limit(path)
    held = HeldParts(source.size_bytes, limit.extents)
    calls: dict[str, Callable[[], object]] = {}
    if find_spec("cv2"):
        calls[OPENCV] = lambda: uniform_with_opencv(path)
    return calls | {
        PYAV: lambda: uniform_with_pyav(path),
        UNIFORM: lambda: extract_local(path, sampling=UNIFORM_SAMPLING, limits=Limits(), native=True),
        DEMUX: lambda: demux_and_seek(path),
        NATIVE: lambda: extract_local(path, sampling=SAMPLING, limits=Limits(), native=True),
        THREADED: lambda: extract_local(path, sampling=SAMPLING, limits=Limits(), native=True, threads=2),
        OURS: lambda: extract_local(path, sampling=SAMPLING, limits=Limits()),
        INDEXED: lambda: extract_ranges(held, sampling=SAMPLING, limits=Limits(), known=index),
        LIMIT: limit,
        PASSING: lambda: _extract(path, pool),
    }


def _extract(path: Path, pool: DecodePool) -> object:
    return pool.extract(path, sampling=SAMPLING, limits=Limits())


def _interleave(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    for call in calls.values():
        call()  # warm up the page cache, and load libraries
    times: dict[str, list[float]] = {method: [] for method in calls}
    for _ in range(rounds):
        for method, call in calls.items():
            times[method].append(time_ms(call))
    return times


def _medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    medians = {method: median(times[method]) for method in METHODS if method in times}
    # Within a round, the child does what OURS does and then hands its frames over.
    medians[PASSING] = median(child - here for child, here in zip(times[PASSING], times[OURS], strict=True))
    return medians
