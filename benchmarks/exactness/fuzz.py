"""Fuzzing: files with seeded damage are extracted and decoded linearly in separate processes, and compared."""

from __future__ import annotations

import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.exactness.agreement import disagreements
from benchmarks.exactness.conformance import wanted_cells
from benchmarks.exactness.linear import ReferenceProcesses
from benchmarks.harness import Column, Table, Target, show
from benchmarks.media.matrix import Cell
from reelabel.errors import VideoError
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.sampling.spec import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.exactness.linear import LinearDecode
    from reelabel.result import Frames

TIMEOUT_S = 10.0
REQUIRED_SHARE = 0.9
_MEMORY_MIB = 2048
_PROCESSES = 2  # mutants processed at once
# A child process that died is retried once.
_LATE_S = 2 * TIMEOUT_S + 5
_CELLS = (
    "mp4/h264/b-frames-h264 mp4/h264/faststart mp4/mpeg4 fmp4/h264 mov/hevc 3gp/h263 mkv/h264/b-frames-h264 mkv/hevc "
    "webm/vp8 webm/vp9 webm/av1 avi/mpeg4 avi/mjpeg flv/h264 ts/h264 ts/mpeg2/b-frames ps/mpeg2 ogg/vp8 asf/wmv2 "
    "mxf/mpeg2 ivf/vp9 rm/rv10 raw/h264 raw/mpeg1"
)
BASES = tuple(Cell(*name.split("/")) for name in _CELLS.split())
_MAX_STEPS = 3
_HEADER_BYTES = 2048
_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
# ISO media boxes carry their size before the name, RIFF chunks after it.
_BOX = re.compile(
    rb"ftyp|moov|mvhd|trak|tkhd|edts|elst|mdia|mdhd|minf|stbl|stsd|stts|ctts|stss|stsz|stsc|stco|mdat|moof|traf|trun",
)
_CHUNK = re.compile(rb"RIFF|LIST|avih|strh|strf|idx1|00dc|OggS")
# EBML header, Segment, Cluster, Cues, Tracks, Info, BlockGroup, SimpleBlock: the size follows.
_ELEMENT = re.compile(
    rb"\x1a\x45\xdf\xa3|\x18\x53\x80\x67|\x1f\x43\xb6\x75|\x1c\x53\xbb\x6b|\x16\x54\xae\x6b|\x15\x49\xa9\x66|\xa0|\xa3",
)

# Pattern of a name, offset of a size or count from its first byte, and width of that number in bytes.
_SIZES = ((_BOX, -4, 4), (_BOX, 8, 4), (_BOX, 12, 4), (_CHUNK, 4, 4), (_ELEMENT, 1, 1), (_ELEMENT, 4, 1))


class Outcome(StrEnum):
    """Outcome of a mutant; the first four are acceptable.

    The counts in a container's index are claims of the file: only decoding all of it, which the index avoids, would
    show that damage hides some of those frames.
    """

    AGREES = "frames agree"
    HIDDEN = "frames agree, the index counts others than the linear decode shows"
    EMPTY = "no frames in either decode"
    UNDECIDED = "the linear decode crashed or is not reproducible"
    LOST = "failed, although the linear decode shows frames"
    WRONG = "pixels differ"
    MISCOUNTED = "pixels agree, but an index, flag or choice differs"
    UNEXPLAINED = "failed without a stable code"
    LATE = "exceeded the time limit"


_FAULTS = {Outcome.WRONG, Outcome.MISCOUNTED, Outcome.UNEXPLAINED, Outcome.LATE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One damaged file, determined by its seed, its number and its base."""

    seed: int
    number: int
    base: Cell
    data: bytes
    steps: tuple[str, ...]
    num_frames: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantResult:
    """Result of one mutant.

    Attributes:
        code: Stable error code; empty where there are frames.
        detail: What is wrong; empty where nothing is.
        extract_s: Seconds of the extraction.
    """

    mutant: Mutant
    outcome: Outcome
    code: str
    detail: str
    extract_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzReport:
    """Results of one call of `fuzz_extraction`."""

    results: Sequence[MutantResult]
    wall_s: float

    @property
    def outcomes(self) -> Counter[Outcome]:
        return Counter(result.outcome for result in self.results)

    @property
    def codes(self) -> Counter[str]:
        return Counter(result.code for result in self.results if result.code)

    @property
    def faults(self) -> list[MutantResult]:
        """Results that must never occur."""
        return [result for result in self.results if result.outcome in _FAULTS]

    @property
    def share(self) -> float:
        """Share of the mutants readable by a linear decode that gave frames."""
        given = self.outcomes[Outcome.AGREES] + self.outcomes[Outcome.HIDDEN]
        readable = given + self.outcomes[Outcome.LOST]
        return given / readable if readable else 1.0


def fuzz(count: int, *, seed: int, only: str, as_json: bool, keep: str | None) -> int:
    """Print what became of mutants, and keep those with a fault; return 1 if there are any, or few have frames."""
    report = fuzz_extraction(count, seed, bases=wanted_cells(only) if only else BASES)
    if keep:
        Path(keep).mkdir(parents=True, exist_ok=True)
        for mutant in (result.mutant for result in report.faults):
            Path(keep, f"{mutant.seed}-{mutant.number}").write_bytes(mutant.data)
    rows = [{"outcome": outcome.value, "mutants": number} for outcome, number in report.outcomes.most_common()]
    columns = (Column("Outcome", "outcome"), Column("Mutants", "mutants", ","))
    faults = [
        {
            "number": result.mutant.number,
            "base": result.mutant.base.name,
            "steps": result.mutant.steps,
            "num_frames": result.mutant.num_frames,
            "outcome": result.outcome.value,
            "detail": result.detail,
        }
        for result in report.faults
    ]
    targets = [
        Target("mutants that ended as none must", len(faults), most=0),
        Target("share of those that a linear decode can read with frames", report.share, least=REQUIRED_SHARE),
    ]
    facts = {
        "codes": dict(report.codes.most_common()),
        "slowest_s": round(max(result.extract_s for result in report.results), 3),
        "wall_s": round(report.wall_s, 1),
        "faults": faults,
    }
    title = f"{len(report.results)} mutants, seed {seed}"
    return show([Table(title, rows, columns)], targets=targets, facts=facts, as_json=as_json)


def fuzz_extraction(count: int, seed: int, *, bases: Sequence[Cell] = BASES) -> FuzzReport:
    """Extract mutants of files, which are damaged in turn, and compare them with their linear decode."""
    started = time.perf_counter()
    with (
        TemporaryDirectory(prefix="reelabel-") as folder,
        DecodePool(processes=_PROCESSES, timeout_s=TIMEOUT_S, memory_mib=_MEMORY_MIB) as ours,
        ReferenceProcesses(_PROCESSES, timeout_s=round(TIMEOUT_S), memory_mib=_MEMORY_MIB) as reference,
        ThreadPoolExecutor(_PROCESSES) as threads,
    ):
        mutants = make_mutants(range(count), seed, bases)
        results = list(threads.map(lambda mutant: _check(mutant, Path(folder), ours, reference), mutants))
    return FuzzReport(results=results, wall_s=time.perf_counter() - started)


def make_mutants(numbers: Iterable[int], seed: int, bases: Sequence[Cell] = BASES) -> list[Mutant]:
    """Make the mutants with these numbers; each depends on its own number only."""
    files = [cell.make() for cell in bases]
    in_turn = [(number, number % len(bases)) for number in numbers]
    return [_make_mutant(number, seed, bases[place], files[place]) for number, place in in_turn]


def _make_mutant(number: int, seed: int, base: Cell, whole: bytes) -> Mutant:
    random = Random(f"{seed}:{number}")  # noqa: S311 - damage, not secrets
    data, steps = mutate(whole, random)
    num_frames = random.choice((16, 4, 1, None))
    return Mutant(seed=seed, number=number, base=base, data=data, steps=steps, num_frames=num_frames)


def _check(mutant: Mutant, folder: Path, ours: DecodePool, reference: ReferenceProcesses) -> MutantResult:
    path = folder / str(mutant.number)
    path.write_bytes(mutant.data)
    started = time.perf_counter()
    got = _attempt(ours, path, mutant.num_frames)
    extract_s = time.perf_counter() - started
    outcome, detail = _outcome(got, mutant, path, reference)
    if extract_s > _LATE_S:
        outcome, detail = Outcome.LATE, f"{extract_s:.1f} s"
    path.unlink()
    code = got.code if isinstance(got, VideoError) else ""
    return MutantResult(mutant=mutant, outcome=outcome, code=code, detail=detail, extract_s=extract_s)


def _attempt(ours: DecodePool, path: Path, num_frames: int | None) -> Frames | Exception:
    try:
        sampling = Sampling(num_frames=num_frames or EVERY)
        return ours.extract(path, sampling=sampling, limits=Limits(), as_stored=True)
    except Exception as error:  # noqa: BLE001 - an unexpected error is a finding
        return error


def _outcome(
    got: Frames | Exception,
    mutant: Mutant,
    path: Path,
    reference: ReferenceProcesses,
) -> tuple[Outcome, str]:
    if isinstance(got, Exception) and not isinstance(got, VideoError):
        return Outcome.UNEXPLAINED, repr(got)
    try:
        linear = reference.decode_linearly(path)
    except VideoError as error:
        return (Outcome.EMPTY, "") if isinstance(got, VideoError) else (Outcome.UNDECIDED, error.message)
    if isinstance(got, VideoError):
        return (Outcome.LOST, got.message) if linear.frames else (Outcome.EMPTY, "")
    return _compare(got, mutant, linear, lambda: reference.decode_linearly(path, in_fresh_memory=True))


def _compare(
    got: Frames,
    mutant: Mutant,
    linear: LinearDecode,
    decode_again: Callable[[], LinearDecode],
) -> tuple[Outcome, str]:
    faults = disagreements(got, linear, num_frames=mutant.num_frames)
    if not faults:
        return Outcome.AGREES, ""
    try:
        # Some decoders output memory that they never wrote: such a file has no reference.
        if decode_again() != linear:
            return Outcome.UNDECIDED, "two linear decodes differ"
    except VideoError as error:
        return Outcome.UNDECIDED, error.message
    outcomes = {"pixels": Outcome.WRONG, "facts": Outcome.MISCOUNTED, "counts": Outcome.HIDDEN}
    return outcomes[faults[0].about], "; ".join(fault.text for fault in faults)


def mutate(data: bytes, random: Random) -> tuple[bytes, tuple[str, ...]]:
    """Apply one to three kinds of damage to a file; return the mutant, which is never empty, and their names."""
    steps = random.choices(_STEPS, k=random.randint(1, _MAX_STEPS))
    for step in steps:
        data = step(data, random) or data
    return data, tuple(step.__name__ for step in steps)


def flip_bits(data: bytes, random: Random) -> bytes:
    """Flip up to 32 bits anywhere."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 32)):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def overwrite_run(data: bytes, random: Random) -> bytes:
    """Overwrite up to 64 bytes with zeros, ones or noise."""
    at, length = random.randrange(len(data)), random.randint(1, 64)
    run = random.choice((bytes(length), b"\xff" * length, random.randbytes(length)))
    return (data[:at] + run + data[at + length :])[: len(data)]


def cut_tail(data: bytes, random: Random) -> bytes:
    """Keep the beginning, usually most of it."""
    return data[: max(1, int(len(data) * random.random() ** 0.3))]


def remove_slice(data: bytes, random: Random) -> bytes:
    """Remove up to a tenth of the file."""
    at = random.randrange(len(data))
    return data[:at] + data[at + random.randint(1, max(1, len(data) // 10)) :]


def repeat_slice(data: bytes, random: Random) -> bytes:
    """Copy up to a tenth of the file to another place."""
    source, target = random.randrange(len(data)), random.randrange(len(data))
    return data[:target] + data[source : source + random.randint(1, max(1, len(data) // 10))] + data[target:]


def edit_header(data: bytes, random: Random) -> bytes:
    """Set a number of 1, 2, 4 or 8 bytes near either end, where headers and indexes are."""
    width = random.choice((1, 2, 4, 8))
    near = random.randrange(min(_HEADER_BYTES, len(data)))
    at = near if random.random() < 0.6 else len(data) - 1 - near  # noqa: PLR2004
    return _with_number(data, at, width, random)


def edit_size(data: bytes, random: Random) -> bytes:
    """Change the size of a box, chunk or element, or the number after its name, whatever the container."""
    pattern, distance, width = random.choice(_SIZES)
    places = [match.start() + distance for match in pattern.finditer(data)]
    if not places:
        return edit_header(data, random)
    return _with_number(data, max(random.choice(places), 0), width, random)


def _with_number(data: bytes, at: int, width: int, random: Random) -> bytes:
    old = int.from_bytes(data[at : at + width], "big")
    new = random.choice((*_EXTREMES, old + 1, old - 1, old * 2, old // 2)) % (1 << 8 * width)
    number = new.to_bytes(width, random.choice(("big", "little")))
    return (data[:at] + number + data[at + width :])[: len(data)]


_STEPS = (flip_bits, overwrite_run, cut_tail, remove_slice, repeat_slice, edit_header, edit_size)
