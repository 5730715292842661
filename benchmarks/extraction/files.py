"""Milliseconds from a local file to sixteen frames, of a locked process beside others, and of a fresh process.

Uniform sampling and demux-and-seek keep the frames' own size, as other loaders do, and so does the row of ours to
compare with them. The limit scales to the model's size, as the column beside it.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
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
    Column("more in a process of its own, ms", "replaced", ",.1f"),
)
_UNIFORM = ("opencv", "pyav", "uniform")
_ONCE_FROM_S = _LONGEST_UNIFORM_S = 600
_IN_A_ROW = 10
_START_S = 30  # length of the clip of which a fresh process takes frames
_POOL = partial(DecodePool, timeout_s=300, memory_mib=4096, threads=1)
_TIMED = """
import sys, time
began, cpu_began = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - began, time.process_time() - cpu_began)
"""
_PYAV = """
import av
with av.open(sys.argv[1]) as file:
    stream = file.streams.video[0]
    stream.codec_context.skip_frame = "NONKEY"
    frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(stream)]
"""
_SCRIPTS = {
    "PyAV: import, and decode all keyframes": _PYAV,
    "ours: import, and extract 16 keyframes": "import reelabel\nreelabel.extract_frames(sys.argv[1], num_frames=16)",
    "PyAV and NumPy: import": "import av, numpy",
    "a decoding process: import": "import reelabel.pool.child",
}


def decode(lengths_s: tuple[int, ...], folder: Path, *, rounds: int) -> list[Table]:
    """Measure every method of decoding on each clip."""
    rows = list(measure_decode(bench_clips(lengths_s), folder, rounds=rounds))
    return [Table("Sixteen frames of a file, ms (medians)", rows, DECODED), Table("Ratios", rows, RATIOS)]


def measure_decode(clips: Sequence[BenchClip], folder: Path, *, rounds: int) -> Iterator[Row]:
    """Yield the median milliseconds of each method, for each clip; methods that were not measured are absent.

    Uniform sampling decodes most of a file: of long clips it is measured once, and of the longest, for one clip only.
    """
    longest = max(clips, key=lambda clip: (clip.length_s, -clip.width_px, -clip.gop))
    with ExitStack() as stack:
        locked = stack.enter_context(_POOL(sandbox="require"))
        unlocked = stack.enter_context(_POOL(sandbox="off"))
        replaced = stack.enter_context(_POOL(sandbox="require", videos_per_process=1))
        for clip in clips:
            path = clip.make(folder)
            calls = _calls(path, locked)
            is_uniform = clip.length_s <= _LONGEST_UNIFORM_S or clip is longest
            uniform = {name: calls.pop(name) for name in _UNIFORM if name in calls}
            times = race(calls, rounds=rounds)
            if is_uniform:
                is_long = clip.length_s >= _ONCE_FROM_S
                times |= race(uniform, rounds=1 if is_long else rounds, warm_up=not is_long)
            work = partial(_extract, path)
            pools = {"locked": partial(work, locked), "unlocked": partial(work, unlocked)}
            row = {"clip": clip.name, **medians(times), **medians(race(pools, rounds=rounds))}
            # Within a round, the child does what `ours` does and then hands its frames over.
            row["passing"] = median(a - b for a, b in zip(times["passing"], times["ours"], strict=True))
            row["replaced"] = _replacement_ms(work, replaced, locked, rounds=rounds)
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


def _replacement_ms(
    work: Callable[[DecodePool], object], replaced: DecodePool, locked: DecodePool, *, rounds: int
) -> float:
    """Return how many milliseconds more a video takes in a process of its own, of several in a row."""

    def in_a_row(pool: DecodePool) -> None:
        for _ in range(_IN_A_ROW):
            work(pool)

    taken = medians(race({"new": partial(in_a_row, replaced), "same": partial(in_a_row, locked)}, rounds=rounds))
    return (taken["new"] - taken["same"]) / _IN_A_ROW


def start(folder: Path, *, rounds: int) -> list[Table]:
    """Time fresh processes in turns, without the start of Python; one more round is not counted."""
    clip = bench_clips((_START_S,))[0].make(folder)
    runs = [[_process_ms(script, clip) for script in _SCRIPTS.values()] for _ in range(rounds + 1)][1:]
    rows = [
        {"work": work, "wall_ms": median(ms for ms, _ in each), "cpu_ms": median(ms for _, ms in each)}
        for work, each in zip(_SCRIPTS, zip(*runs, strict=True), strict=True)
    ]
    columns = (Column("", "work"), Column("ms", "wall_ms", ",.0f"), Column("CPU ms", "cpu_ms", ",.0f"))
    return [Table("Fresh processes, without the start of Python (medians)", rows, columns)]


def _process_ms(script: str, clip: Path) -> tuple[float, float]:
    command = [sys.executable, "-c", _TIMED.format(script), str(clip)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own script
    wall_s, cpu_s = map(float, done.stdout.split())
    return wall_s * 1e3, cpu_s * 1e3
