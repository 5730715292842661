"""Milliseconds from a local file to sixteen frames, and of a locked process beside others.

Uniform sampling and demux-and-seek keep the frames' own size, as other loaders do, and so does the row of ours to
compare with them. The limit scales to the model's size, as the column beside it.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING

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
from benchmarks.harness import Column, Table, medians, race, ratio
from benchmarks.media.clips import bench_clips
from reelabel.extract import extract_local, extract_ranges
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.harness import Row
    from benchmarks.media.clips import BenchClip

_CLIP = Column("clip", "clip")
DECODED = (
    _CLIP,
    Column("uniform, OpenCV", "opencv", ",.1f"),
    Column("uniform, PyAV", "pyav", ",.1f"),
    Column("uniform, ours", "uniform", ",.1f"),
    Column("demux and seek", "demux", ",.1f"),
    Column("ours", "native", ",.1f"),
    Column("two threads", "threaded", ",.1f"),
    Column("ours, model's size", "ours", ",.1f"),
    Column("index cached", "indexed", ",.1f"),
    Column("limit", "limit", ",.1f"),
    Column("passing out", "passing", ",.1f"),
)
RATIOS = (
    _CLIP,
    ratio("demux and seek / ours", "demux", "native"),
    ratio("/ ours, two threads", "demux", "threaded"),
    ratio("ours / limit", "ours", "limit"),
    ratio("index cached / limit", "indexed", "limit"),
    ratio("uniform, PyAV / ours", "pyav", "uniform"),
    ratio("locked process / unlocked", "locked", "unlocked"),
)
_UNIFORM = ("opencv", "pyav", "uniform")
_ONCE_FROM_S = _LONGEST_UNIFORM_S = 600
_POOL = partial(DecodePool, timeout_s=300, memory_mib=4096, threads=1)


def decode(lengths_s: tuple[int, ...], folder: Path, *, rounds: int) -> list[Table]:
    rows = list(measure_decode(bench_clips(lengths_s), folder, rounds=rounds))
    return [Table("Sixteen frames of a file, ms (medians)", rows, DECODED), Table("Ratios", rows, RATIOS)]


def measure_decode(clips: Sequence[BenchClip], folder: Path, *, rounds: int) -> Iterator[Row]:
    """Yield the median milliseconds of each method, for each clip; methods that were not measured are absent.

    Uniform sampling decodes most of a file: of long clips it is measured once, and of the longest, for one clip only.
    """
    longest = max(clips, key=lambda clip: (clip.length_s, -clip.width_px, -clip.gop))
    with _POOL(sandbox="require") as locked, _POOL(sandbox="off") as unlocked:
        for clip in clips:
            path = clip.make(folder)
            calls = _calls(path, locked)
            is_uniform = clip.length_s <= _LONGEST_UNIFORM_S or clip is longest
            uniform = {name: calls.pop(name) for name in _UNIFORM if name in calls}
            times = race(calls, rounds=rounds)
            if is_uniform:
                is_long = clip.length_s >= _ONCE_FROM_S
                times |= race(uniform, rounds=1 if is_long else rounds, warm_up=not is_long)
            pools = {"locked": partial(_extract, path, locked), "unlocked": partial(_extract, path, unlocked)}
            row = {"clip": clip.name, **medians(times), **medians(race(pools, rounds=rounds))}
            # Within a round, the child does what `ours` does and then hands its frames over.
            row["passing"] = median(a - b for a, b in zip(times["passing"], times["ours"], strict=True))
            yield row


def _calls(path: Path, pool: DecodePool) -> dict[str, Callable[[], object]]:
    source, limit = FileParts(path), Limit(path)
    _, index = extract_ranges(source, sampling=SAMPLING, limits=Limits())
    held = HeldParts(source.size_bytes, limit.extents)
    local = partial(extract_local, path, limits=Limits())
    opencv = {"opencv": partial(uniform_with_opencv, path)} if find_spec("cv2") else {}
    return opencv | {
        "pyav": partial(uniform_with_pyav, path),
        "uniform": partial(local, sampling=UNIFORM_SAMPLING, as_stored=True),
        "demux": partial(demux_and_seek, path),
        "native": partial(local, sampling=SAMPLING, as_stored=True),
        "threaded": partial(local, sampling=SAMPLING, as_stored=True, threads=2),
        "ours": partial(local, sampling=SAMPLING),
        "indexed": partial(extract_ranges, held, sampling=SAMPLING, limits=Limits(), known=index),
        "limit": limit,
        "passing": partial(_extract, path, pool),
    }


def _extract(path: Path, pool: DecodePool) -> object:
    return pool.extract(path, sampling=SAMPLING, limits=Limits())
