"""Ours and TorchCodec in turn, on the same frames of the same clips."""

from __future__ import annotations

import json
import os
import random
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

import reelabel
from reelabel.cores import usable_cores
from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_ROOT = Path(__file__).parents[2]
_FRAMES = 16


class Setting(NamedTuple):
    """How TorchCodec decodes; 0 threads leave their number to FFmpeg."""

    seek_mode: str
    threads: int

    def __str__(self) -> str:
        """Return its name in tables."""
        return f"{self.seek_mode} {self.threads}"


SETTINGS = tuple(Setting(mode, threads) for mode in ("exact", "approximate") for threads in (0, 1, 2))


class Choice(NamedTuple):
    """What both loaders are asked for: at random, sixteen positions; otherwise, uniform frames."""

    at_model_size: bool = False
    at_random: bool = False

    def __str__(self) -> str:
        """Return the title of a table."""
        size = "the model's size" if self.at_model_size else "the source's size"
        return f"{_FRAMES} {'random' if self.at_random else 'uniform'} frames at {size}"

    def request(self, clip: Path) -> dict[str, Any]:
        """Return what to ask a loader."""
        asked: dict[str, Any] = {"path": str(clip.absolute()), "at_model_size": self.at_model_size}
        if self.at_random:
            with reelabel.open(clip) as video:
                asked["indices"] = sorted(random.Random(0).sample(range(len(video)), _FRAMES))  # noqa: S311 - not secret
        return asked


class Pair(NamedTuple):
    """One round with one setting: theirs, and ours right after, in milliseconds."""

    theirs_ms: float
    ours_ms: float
    theirs_cpu_ms: float
    ours_cpu_ms: float


class Bare(NamedTuple):
    """One round of FFmpeg alone, from packets in memory, with all cores.

    Attributes:
        all_ms: All pictures from a keyframe to a pick, as TorchCodec decodes them.
        needed_ms: Without those that are neither picked nor referred to, which we leave out.
    """

    all_ms: float
    needed_ms: float
    all_cpu_ms: float
    needed_cpu_ms: float


class Load(NamedTuple):
    """What one user of a loader waits for, spends and gets."""

    ms: float
    cpu_ms: float
    bytes_read: int
    times_s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyframeRow:
    """Keyframes by ours, and the uniform frames of TorchCodec's approximate seek, which vLLM took in their place.

    Attributes:
        clip: Name of the clip.
        ours: Rounds of ours.
        theirs: Rounds of TorchCodec.
        size_bytes: Size of the file.
    """

    clip: str
    ours: Sequence[Load]
    theirs: Sequence[Load]
    size_bytes: int

    @property
    def distance_s(self) -> float:
        """Mean distance from a uniform frame to the nearest keyframe, in seconds."""
        ours, theirs = (np.array(loads[0].times_s) for loads in (self.ours, self.theirs))
        return float(np.abs(theirs[:, None] - ours).min(axis=1).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    """What was measured on one clip.

    Attributes:
        clip: Its name.
        pairs: The rounds, by TorchCodec's setting; ours uses all cores.
        bare: The rounds of FFmpeg alone.
        pictures: Pictures that TorchCodec has to decode at least, and those that ours has decoded.
        ours_alone_ms: Our median with a single thread.
        are_times_equal: Whether both have returned the frames of the same times.
        mean_difference: Mean absolute difference of the frames' RGB values, of 255; 0 if all pixels are equal.
    """

    clip: str
    pairs: Mapping[Setting, Sequence[Pair]]
    bare: Sequence[Bare]
    pictures: tuple[int, int]
    ours_alone_ms: float
    are_times_equal: bool
    mean_difference: float

    def theirs_ms(self, setting: Setting) -> float:
        """Return TorchCodec's median."""
        return median(pair.theirs_ms for pair in self.pairs[setting])

    @property
    def ours_ms(self) -> float:
        """Our median, over the rounds of all settings."""
        return median(pair.ours_ms for pairs in self.pairs.values() for pair in pairs)

    @property
    def ratio(self) -> float:
        """How many times as long TorchCodec takes with the setting that suits it best."""
        return min(median(pair.theirs_ms / pair.ours_ms for pair in pairs) for pairs in self.pairs.values())

    @property
    def cpu_ratio(self) -> float:
        """How many times as much CPU time it takes with the setting that takes least."""
        return min(median(pair.theirs_cpu_ms / pair.ours_cpu_ms for pair in pairs) for pairs in self.pairs.values())

    @property
    def bound(self) -> float:
        """`cpu_ratio` of two loaders that cost nothing beyond FFmpeg: CPU time of all pictures / of those needed."""
        return median(each.all_cpu_ms / each.needed_cpu_ms for each in self.bare)

    @property
    def overhead(self) -> float:
        """How many times the CPU time of FFmpeg alone ours takes, with all cores, for the same pictures."""
        ours = median(pair.ours_cpu_ms for pairs in self.pairs.values() for pair in pairs)
        return ours / median(each.needed_cpu_ms for each in self.bare)


class LoadingProcess:
    """A process that loads frames on request."""

    def __init__(self, python: Path | str, loader: str) -> None:
        """Start it."""
        self._loader = loader
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [python, "-P", "-m", "benchmarks.torchcodec.process", loader],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
        )

    def __enter__(self) -> Self:
        """Return the process."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """End it."""
        self._process.terminate()
        self._process.communicate()

    def ask(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Load frames once.

        Raises:
            ReelabelError: The process has ended.
        """
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
    *,
    rounds: int,
    choice: Choice,
) -> Iterator[PeerRow]:
    """Measure each clip with every setting.

    Args:
        clips: The clips.
        pythons: Our Python, and that of TorchCodec's environment.
        rounds: Pairs per setting.
        choice: What both are asked for.
    """
    with ExitStack() as stack:
        ours = stack.enter_context(LoadingProcess(pythons[0], "ours"))
        theirs = stack.enter_context(LoadingProcess(pythons[1], "torchcodec"))
        bare = stack.enter_context(LoadingProcess(pythons[0], "bare"))
        for clip in clips:
            request = choice.request(clip)
            yield _measure((ours, theirs, bare), clip.stem, request, rounds)


def measure_keyframes(
    clips: Iterable[Path], pythons: tuple[Path | str, Path | str], *, rounds: int, at_model_size: bool
) -> Iterator[KeyframeRow]:
    """Measure the keyframes of each clip, and the frames of an approximate seek, in turn; as `measure_clips`."""
    with LoadingProcess(pythons[0], "ours") as ours, LoadingProcess(pythons[1], "torchcodec") as theirs:
        for clip in clips:
            request = {"path": str(clip.absolute()), "at_model_size": at_model_size}
            mine = request | {"sampler": "keyframes", "threads": usable_cores()}
            size = ours.ask(**mine)["size"]
            his = request | Setting("approximate", 0)._asdict() | {"size": size}
            theirs.ask(**his)
            pairs = [(_load(ours, mine), _load(theirs, his)) for _ in range(rounds)]
            yield KeyframeRow(
                clip=clip.stem,
                ours=[load for load, _ in pairs],
                theirs=[load for _, load in pairs],
                size_bytes=clip.stat().st_size,
            )


def _load(process: LoadingProcess, request: Mapping[str, Any]) -> Load:
    got = process.ask(**request)
    return Load(**{name: got[name] for name in Load._fields})


def _measure(
    processes: tuple[LoadingProcess, LoadingProcess, LoadingProcess],
    clip: str,
    request: Mapping[str, Any],
    rounds: int,
) -> PeerRow:
    ours, theirs, bare = processes
    threaded, alone = (dict(request) | {"threads": threads} for threads in (usable_cores(), 1))
    with TemporaryDirectory(prefix="reelabel-") as folder:
        kept = [Path(folder, f"{name}.npy") for name in ("ours", "torchcodec")]
        first = ours.ask(**threaded, keep=str(kept[0]))
        wanted = threaded | {"indices": first["indices"], "size": first["size"]}
        other = theirs.ask(**wanted, seek_mode="exact", keep=str(kept[1]))
        difference = _difference(*kept)
        every = bare.ask(**wanted, skips_leaves=False)
    pairs: dict[Setting, list[Pair]] = {setting: [] for setting in SETTINGS}
    alone_ms, bare_rounds = [], []
    for _ in range(rounds):
        for setting in SETTINGS:
            his, mine = theirs.ask(**wanted | setting._asdict()), ours.ask(**threaded)
            pairs[setting].append(Pair(his["ms"], mine["ms"], his["cpu_ms"], mine["cpu_ms"]))
        alone_ms.append(ours.ask(**alone)["ms"])
        whole, needed = (bare.ask(**wanted, skips_leaves=skips) for skips in (False, True))
        bare_rounds.append(Bare(whole["ms"], needed["ms"], whole["cpu_ms"], needed["cpu_ms"]))
    return PeerRow(
        clip=clip,
        pairs=pairs,
        bare=bare_rounds,
        pictures=(every["decoded"], first["decoded"]),
        ours_alone_ms=median(alone_ms),
        are_times_equal=bool(np.allclose(first["times_s"], other["times_s"], rtol=0, atol=1e-6)),
        mean_difference=difference,
    )


def _difference(ours: Path, theirs: Path) -> float:
    pairs = zip(np.load(ours, mmap_mode="r"), np.load(theirs, mmap_mode="r"), strict=True)
    return float(np.mean([np.abs(mine.astype(np.int16) - his).mean() for mine, his in pairs]))
