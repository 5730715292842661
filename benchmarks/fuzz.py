"""Damaged files, extracted and decoded linearly in separate processes, and compared."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import av.error

from benchmarks.agreement import disagreements
from benchmarks.linear import LinearDecode, decode_linearly
from benchmarks.media.matrix import Cell, matrix
from benchmarks.mutate import mutate
from infra.errors import VideoError
from tasks.domain import Sampling
from tasks.video.extract import extract_keyframes
from tasks.video.limits import Limits
from tasks.video.pool import DecodePool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tasks.video.keyframes import Keyframes

TIMEOUT_S = 10.0
ENOUGH_SHARE = 0.9
_MEMORY_MIB = 2048
# A child that died is given one more try.
_LATE_S = 2 * TIMEOUT_S + 5
_CELLS = (
    "mp4/h264/b-frames-h264 mp4/h264/faststart mp4/mpeg4 fmp4/h264 mov/hevc 3gp/h263 mkv/h264/b-frames-h264 mkv/hevc "
    "webm/vp8 webm/vp9 webm/av1 avi/mpeg4 avi/mjpeg flv/h264 ts/h264 ts/mpeg2/b-frames ps/mpeg2 ogg/vp8 asf/wmv2 "
    "mxf/mpeg2 ivf/vp9 rm/rv10 raw/h264 raw/mpeg1"
)
BASES = tuple(Cell(*name.split("/")) for name in _CELLS.split())


class Verdict(StrEnum):
    """What became of a mutant; the first four are as they should be.

    What a container's index counts is a file's own claim: only a decode of the whole would tell that
    damage hides some of those frames, and it is what the index spares.
    """

    AGREES = "frames agree"
    HIDDEN = "frames agree, the index counts some that damage hides"
    REFUSED = "nothing to show"
    UNDECIDED = "linear decode died or differs from itself"
    LOST = "failed, though the linear decode shows frames"
    WRONG = "pixels differ"
    MISCOUNTED = "pixels agree, an index, flag or choice differs"
    UNEXPLAINED = "failed without a stable code"
    LATE = "past the time limit"


_NEVER = {Verdict.WRONG, Verdict.MISCOUNTED, Verdict.UNEXPLAINED, Verdict.LATE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One damaged file: all of it follows from its seed, its number and its base."""

    seed: int
    number: int
    base: Cell
    data: bytes
    steps: tuple[str, ...]
    num_frames: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one mutant.

    Attributes:
        code: The error's stable code; empty where frames were given.
        detail: What is wrong; empty where nothing is.
        extract_s: Seconds that the extraction took.
    """

    mutant: Mutant
    verdict: Verdict
    code: str
    detail: str
    extract_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzReport:
    """All outcomes of one call of `run`."""

    outcomes: Sequence[Outcome]
    wall_s: float

    @property
    def verdicts(self) -> Counter[Verdict]:
        """Count outcomes by verdict."""
        return Counter(outcome.verdict for outcome in self.outcomes)

    @property
    def codes(self) -> Counter[str]:
        """Count failures by code."""
        return Counter(outcome.code for outcome in self.outcomes if outcome.code)

    @property
    def faults(self) -> list[Outcome]:
        """List what must never be."""
        return [outcome for outcome in self.outcomes if outcome.verdict in _NEVER]

    @property
    def share(self) -> float:
        """Tell which part of the mutants that a linear decode can read gave frames."""
        given = self.verdicts[Verdict.AGREES] + self.verdicts[Verdict.HIDDEN]
        readable = given + self.verdicts[Verdict.LOST]
        return given / readable if readable else 1.0

    @property
    def is_sound(self) -> bool:
        """Tell whether nothing was wrong and enough was read."""
        return not self.faults and self.share >= ENOUGH_SHARE


def bases_like(prefix: str) -> Sequence[Cell]:
    """List the files of the whole matrix whose names begin so: `avi`, or `avi/mpeg4`."""
    return [cell for cell in matrix() if cell.name.startswith(prefix)] if prefix else BASES


class _Processes(DecodePool):
    """Disposable processes that decode natively, by either way."""

    def extract_natively(self, path: Path, num_frames: int | None) -> Keyframes:
        sampling = Sampling(num_frames=num_frames or 1)
        every = num_frames is None
        return self._run(extract_keyframes, path, sampling=sampling, limits=Limits(), native=True, every=every)

    def decode_linearly(self, path: Path, *, in_fresh_memory: bool = False) -> LinearDecode:
        return self._run(_decode_or_nothing, path, in_fresh_memory=in_fresh_memory)


def run(count: int, seed: int, *, bases: Sequence[Cell] = BASES, processes: int = 2) -> FuzzReport:
    """Extract and judge mutants of every container.

    Args:
        count: Number of mutants.
        seed: The same seed makes the same mutants.
        bases: What is damaged, in turn.
        processes: Mutants at work at once.
    """
    started = time.perf_counter()
    with (
        TemporaryDirectory(prefix="reelabel-") as folder,
        _Processes(processes=processes, timeout_s=TIMEOUT_S, memory_mib=_MEMORY_MIB) as ours,
        _Processes(processes=processes, timeout_s=TIMEOUT_S, memory_mib=_MEMORY_MIB) as reference,
        ThreadPoolExecutor(processes) as threads,
    ):
        mutants = make_mutants(range(count), seed, bases)
        judged = threads.map(lambda mutant: _judge(mutant, Path(folder), ours, reference), mutants)
        outcomes = list(judged)
    return FuzzReport(outcomes=outcomes, wall_s=time.perf_counter() - started)


def make_mutants(numbers: Iterable[int], seed: int, bases: Sequence[Cell] = BASES) -> list[Mutant]:
    """Make the mutants of these numbers, the same in whatever company."""
    files = [cell.make() for cell in bases]
    in_turn = [(number, number % len(bases)) for number in numbers]
    return [_make_mutant(number, seed, bases[place], files[place]) for number, place in in_turn]


def _make_mutant(number: int, seed: int, base: Cell, whole: bytes) -> Mutant:
    random = Random(f"{seed}:{number}")  # noqa: S311 - damage, not secrets
    data, steps = mutate(whole, random)
    num_frames = random.choice((16, 4, 1, None))
    return Mutant(seed=seed, number=number, base=base, data=data, steps=steps, num_frames=num_frames)


def _judge(mutant: Mutant, folder: Path, ours: _Processes, reference: _Processes) -> Outcome:
    path = folder / str(mutant.number)
    path.write_bytes(mutant.data)
    started = time.perf_counter()
    got = _attempt(ours, path, mutant.num_frames)
    extract_s = time.perf_counter() - started
    verdict, detail = _verdict(got, mutant, path, reference)
    if extract_s > _LATE_S:
        verdict, detail = Verdict.LATE, f"{extract_s:.1f} s"
    path.unlink()
    code = got.code if isinstance(got, VideoError) else ""
    return Outcome(mutant=mutant, verdict=verdict, code=code, detail=detail, extract_s=extract_s)


def _attempt(ours: _Processes, path: Path, num_frames: int | None) -> Keyframes | Exception:
    try:
        return ours.extract_natively(path, num_frames)
    except Exception as error:  # noqa: BLE001 - an unexplained error is a finding, not an end
        return error


def _verdict(
    got: Keyframes | Exception,
    mutant: Mutant,
    path: Path,
    reference: _Processes,
) -> tuple[Verdict, str]:
    if isinstance(got, Exception) and not isinstance(got, VideoError):
        return Verdict.UNEXPLAINED, repr(got)
    try:
        linear = reference.decode_linearly(path)
    except VideoError as error:
        return (Verdict.REFUSED, "") if isinstance(got, VideoError) else (Verdict.UNDECIDED, error.message)
    if isinstance(got, VideoError):
        return (Verdict.LOST, got.message) if linear.frames else (Verdict.REFUSED, "")
    return _compared(got, mutant, linear, lambda: reference.decode_linearly(path, in_fresh_memory=True))


def _compared(
    got: Keyframes,
    mutant: Mutant,
    linear: LinearDecode,
    decode_again: Callable[[], LinearDecode],
) -> tuple[Verdict, str]:
    faults = disagreements(got, linear, num_frames=mutant.num_frames)
    if not faults:
        return Verdict.AGREES, ""
    try:
        # Some decoders show memory that they never wrote: such a file has no truth to hold to.
        if decode_again() != linear:
            return Verdict.UNDECIDED, "two linear decodes differ"
    except VideoError as error:
        return Verdict.UNDECIDED, error.message
    verdicts = {"pixels": Verdict.WRONG, "facts": Verdict.MISCOUNTED, "counts": Verdict.HIDDEN}
    return verdicts[faults[0].about], "; ".join(fault.text for fault in faults)


def _decode_or_nothing(path: Path, *, in_fresh_memory: bool) -> LinearDecode:
    try:
        return decode_linearly(path, in_fresh_memory=in_fresh_memory)
    except MemoryError:
        raise
    except (av.error.FFmpegError, OSError, ValueError):
        return LinearDecode((), 0.0)
