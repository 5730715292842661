"""Compares our dense sampling with TorchCodec's on the same frames of the same clips.

TorchCodec needs a torch of its own, and FFmpeg's shared libraries, so it runs in an environment that is made next to
the clips; each loader is a process that answers requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from ctypes.util import find_library
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from benchmarks.harness import Column, Table, Target, make_environment
from reelabel.cores import usable_cores
from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from benchmarks.harness import Row

_ROOT = Path(__file__).parents[2]
_REQUIREMENTS = Path(__file__).with_name("torchcodec.txt")
_FRAMES = 16
_LEAST_RATIO = 1.5
# By name, how TorchCodec decodes; 0 threads leave their number to FFmpeg.
SETTINGS = {
    f"{mode} {threads}": {"seek_mode": mode, "threads": threads}
    for mode in ("exact", "approximate")
    for threads in (0, 1, 2)
}
PEER = (
    Column("clip", "clip"),
    Column("ours", "ours_ms", ",.1f"),
    Column("1 thread", "alone_ms", ",.1f"),
    *(Column(name, name, ",.1f") for name in SETTINGS),
    Column("ratio", "ratio", ".2fx"),
    Column("CPU ratio", "cpu_ratio", ".2fx"),
    Column("times", lambda row: "equal" if row["are_times_equal"] else "other"),
    Column("difference", lambda row: f"{row['difference']:.2f}" if row["difference"] else "none"),
)
BOUND = (
    Column("clip", "clip"),
    Column("pictures", "pictures", ","),
    Column("of which ours decodes", "decoded", ","),
    Column("all, ms", "all_ms", ",.1f"),
    Column("ours, ms", "needed_ms", ",.1f"),
    Column("bound", "bound", ".2fx"),
    Column("CPU ratio", "cpu_ratio", ".2fx"),
    Column("ours / FFmpeg", "overhead", ".2fx"),
)
KEYFRAMES = (
    Column("clip", "clip"),
    Column("file, bytes", "size_bytes", ","),
    *(
        Column(f"{side}, {figure}", f"{side} {figure}", spec)
        for figure, spec in (("frames", ""), ("ms", ",.1f"), ("CPU ms", ",.1f"), ("bytes", ",.0f"))
        for side in ("ours", "TorchCodec")
    ),
    Column("distance, s", "distance_s", ".2f"),
)


def torchcodec_python(folder: Path) -> Path:
    """Return the Python of TorchCodec's environment below `folder`, which is made unless it exists."""
    if find_library("avcodec") is None:
        raise ReelabelError("TorchCodec finds no FFmpeg on this machine; install it: sudo apt-get install ffmpeg.")
    return make_environment(folder / "torchcodec", _REQUIREMENTS, what="TorchCodec")


def compare(clips: Iterable[Path], folder: Path, *, rounds: int) -> tuple[list[Table], list[Target]]:
    theirs = torchcodec_python(folder)
    rows = list(measure_clips(clips, (sys.executable, theirs), rounds))
    targets = [Target(f"{row['clip']}: times equal", float(row["are_times_equal"]), least=1) for row in rows]
    targets += [Target(f"{row['clip']}: TorchCodec / ours", row["ratio"], least=_LEAST_RATIO) for row in rows]
    bound = Table("FFmpeg alone, on the pictures of each", rows, BOUND)
    return [Table(f"{_FRAMES} uniform frames at their own size, ms", rows, PEER), bound], targets


def compare_keyframes(clips: Iterable[Path], folder: Path, *, rounds: int) -> list[Table]:
    rows = list(measure_keyframes(clips, (sys.executable, torchcodec_python(folder)), rounds))
    return [Table("Keyframes, and TorchCodec's approximate seek", rows, KEYFRAMES)]


class LoadingProcess:
    """A process that loads frames on request; a context manager."""

    def __init__(self, python: Path | str, loader: str) -> None:
        self._loader = loader
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [python, "-P", "-m", "benchmarks.extraction.loader_process", loader],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def ask(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Load frames once."""
        assert self._process.stdin
        assert self._process.stdout
        line = ""
        with suppress(BrokenPipeError):
            print(json.dumps(request | {"frames": _FRAMES}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        if not line:
            raise ReelabelError(f"The process of {self._loader} has ended; its error is above.")
        answer: dict[str, Any] = json.loads(line)
        return answer


def measure_clips(
    clips: Iterable[Path],
    pythons: tuple[Path | str, Path | str],
    rounds: int,
) -> Iterator[Row]:
    """Yield what both loaders and FFmpeg alone take, for each clip; `pythons` are ours and TorchCodec's."""
    with ExitStack() as stack:
        ours, theirs, bare = (
            stack.enter_context(LoadingProcess(python, loader))
            for python, loader in ((pythons[0], "ours"), (pythons[1], "torchcodec"), (pythons[0], "bare"))
        )
        for clip in clips:
            yield {"clip": clip.stem, **_measure(ours, theirs, bare, {"path": str(clip.absolute())}, rounds)}


def _measure(
    ours: LoadingProcess, theirs: LoadingProcess, bare: LoadingProcess, request: Mapping[str, Any], rounds: int
) -> dict[str, Any]:
    threaded, alone = (dict(request) | {"threads": threads} for threads in (usable_cores(), 1))
    with TemporaryDirectory(prefix="reelabel-") as folder:
        kept = [Path(folder, f"{name}.npy") for name in ("ours", "torchcodec")]
        first = ours.ask(**threaded, keep=str(kept[0]))
        wanted = threaded | {"indices": first["indices"]}
        other = theirs.ask(**wanted, seek_mode="exact", keep=str(kept[1]))
        difference = _difference(*kept)
        every = bare.ask(**wanted, skips_leaves=False)
    pairs: dict[str, list[tuple[Any, Any]]] = {name: [] for name in SETTINGS}
    alone_ms: list[float] = []
    bare_rounds: list[tuple[Row, Row]] = []
    for _ in range(rounds):
        for name, setting in SETTINGS.items():
            pairs[name].append((theirs.ask(**wanted | setting), ours.ask(**threaded)))
        alone_ms.append(ours.ask(**alone)["ms"])
        whole, needed = (bare.ask(**wanted, skips_leaves=skips) for skips in (False, True))
        bare_rounds.append((whole, needed))
    return summarize(pairs, bare_rounds) | {
        "alone_ms": median(alone_ms),
        "pictures": every["decoded"],
        "decoded": first["decoded"],
        "are_times_equal": bool(np.allclose(first["times_s"], other["times_s"], rtol=0, atol=1e-6)),
        "difference": difference,
    }


def summarize(
    pairs: Mapping[str, Sequence[tuple[Row, Row]]], bare_rounds: Sequence[tuple[Row, Row]]
) -> dict[str, float]:
    """Return medians and ratios.

    Args:
        pairs: By TorchCodec's setting, its answer and ours of each round, with `ms` and `cpu_ms`.
        bare_rounds: FFmpeg alone: all pictures up to a sampled one, and those that are needed.
    """

    def least_ratio(figure: str) -> float:
        return min(float(median(his[figure] / mine[figure] for his, mine in each)) for each in pairs.values())

    mine = [mine for each in pairs.values() for _, mine in each]
    needed_cpu_ms = median(needed["cpu_ms"] for _, needed in bare_rounds)
    return {
        **{name: median(his["ms"] for his, _ in each) for name, each in pairs.items()},
        "ours_ms": median(each["ms"] for each in mine),
        "ratio": least_ratio("ms"),
        "cpu_ratio": least_ratio("cpu_ms"),
        "all_ms": median(every["ms"] for every, _ in bare_rounds),
        "needed_ms": median(needed["ms"] for _, needed in bare_rounds),
        "bound": median(every["cpu_ms"] / needed["cpu_ms"] for every, needed in bare_rounds),
        "overhead": median(each["cpu_ms"] for each in mine) / needed_cpu_ms,
    }


def measure_keyframes(
    clips: Iterable[Path],
    pythons: tuple[Path | str, Path | str],
    rounds: int,
) -> Iterator[Row]:
    """Yield what the keyframes of each clip cost, and the frames of an approximate seek."""
    with LoadingProcess(pythons[0], "ours") as ours, LoadingProcess(pythons[1], "torchcodec") as theirs:
        for clip in clips:
            request = {"path": str(clip.absolute())}
            mine = request | {"sampler": "keyframes", "threads": usable_cores()}
            his = request | SETTINGS["approximate 0"]
            ours.ask(**mine)
            theirs.ask(**his)
            pairs = [(ours.ask(**mine), theirs.ask(**his)) for _ in range(rounds)]
            yield {"clip": clip.stem, "size_bytes": clip.stat().st_size, **keyframe_figures(pairs)}


def keyframe_figures(pairs: Sequence[tuple[Row, Row]]) -> dict[str, float]:
    """Return medians of both loaders, and the mean distance from a uniform frame to the nearest keyframe."""
    times = [np.array(each["times_s"]) for each in pairs[0]]
    figures: dict[str, float] = {"distance_s": float(np.abs(times[1][:, None] - times[0]).min(axis=1).mean())}
    for side, name in enumerate(("ours", "TorchCodec")):
        figures[f"{name} frames"] = len({*pairs[0][side]["times_s"]})
        for heading, field in (("ms", "ms"), ("CPU ms", "cpu_ms"), ("bytes", "bytes_read")):
            figures[f"{name} {heading}"] = median(pair[side][field] for pair in pairs)
    return figures


def _difference(ours: Path, theirs: Path) -> float:
    pairs = zip(np.load(ours, mmap_mode="r"), np.load(theirs, mmap_mode="r"), strict=True)
    return float(np.mean([np.abs(mine.astype(np.int16) - his).mean() for mine, his in pairs]))
