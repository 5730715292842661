"""Comparison of samplers with the loaders of vLLM that they reproduce, on files."""

from __future__ import annotations

import json
import struct
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Column, Table, Target, progress, show
from benchmarks.media.matrix import Cell, matrix
from reelabel.errors import ConfigurationError, SamplingRefusedError, VideoError
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import choose_indices, find_sampler
from reelabel.sampling.spec import EVERY, VideoProperties
from reelabel_engine.environment import engine_environment, find_python
from reelabel_engine.protocol import EngineConfig
from tasks.model.identity import TINY_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from reelabel.result import Frames

    Files = dict[str, Callable[[], bytes]]  # what makes each, by name

SAMPLINGS = (
    Sampling(sampler="uniform"),
    Sampling(sampler="uniform", num_frames=512),
    Sampling(sampler="uniform", fps=4),
    Sampling(sampler="dynamic"),
    Sampling(sampler="qwen2_vl"),
    Sampling(sampler="qwen3_vl", fps=6),
    Sampling(sampler="glm46v"),
    Sampling(sampler="glm5_next"),
    Sampling(sampler="glmga"),
    Sampling(sampler="molmo2"),
    Sampling(sampler="openpangu"),
    Sampling(sampler="llava_onevision2"),
    Sampling(sampler="minimax_m3_vl"),
    Sampling(sampler="embedding_gemma2"),
    Sampling(sampler="clef_omni"),
)
EQUAL = "equal"
_BOTH_REFUSE, _REFUSED = "both refuse", "Reelabel refuses: its sampler wants no frame"
_TIMEOUT_S = 600
_SCRIPT = Path(__file__).with_name("vllm_loaders.py")
_SOURCE = "vLLM's loader "
_OPTIONS = {"fps": "fps", "max_duration_s": "max_duration", "min_frames": "min_frames", "max_frames": "max_frames"}
_RATE_TOLERANCE = 1e-6
# Matroska's `Duration`, a float of eight bytes, in milliseconds.
_MATROSKA_DURATION = bytes.fromhex("448988")
_AVI_FRAMES_AT = {b"avih": 24, b"strh": 40}  # from the name of the chunk to its count of frames
_MOLMO2_FPS = 2.0


def agreement_with_vllm(clips: Path | None = None) -> int:
    """Compare samplers with the loaders that they reproduce, on the files of a folder, or on made ones.

    Returns 1 if a difference has no known reason, else 0.
    """
    with progress("Making files, and asking vLLM's loaders"):
        found = compare_kinds(kinds_of(clips) if clips else kinds())
    rows = []
    for title, outcomes in found.items():
        counts = {outcome: len(names) for outcome, names in outcomes.items()}
        others = sorted(f"{count} {outcome}" for outcome, count in counts.items() if outcome != EQUAL)
        row = {"files": title, "choices": sum(counts.values()), "equal": counts.get(EQUAL, 0)}
        rows.append(row | {"others": "\n".join(others)})
    columns = (
        Column("Files", "files"),
        Column("Choices", "choices"),
        Column("Equal", "equal"),
        Column("Others, by reason", "others"),
    )
    faults = unexplained(found)
    note = "\n".join(f"{name}: differs for no known reason" for name in faults)
    return show(
        [Table("Samplers against vLLM's loaders", rows, columns, note)],
        targets=[Target("differences for no known reason", len(faults), most=0)],
    )


def kinds() -> dict[str, Files]:
    """Return the files to compare, by kind: good ones, and those about which header and frames disagree."""

    def cells(structure: str, *, without: str = "") -> Files:
        found = [cell for cell in matrix() if cell.structure == structure and cell.container != without]
        return {cell.name: cell.make for cell in found}

    gap = Cell("avi", "h264", "variable-rate")
    return {
        "with B-frames": cells("b-frames-h264"),
        "variable rate": cells("variable-rate", without="avi"),
        "AVI with gaps": {gap.name: gap.make},
        "start later than zero": cells("start-later"),
        "wrong header": {each.__name__: each for each in (claims_twice_the_frames, claims_half_the_length)},
        "no index": cells("no-index"),
        "edit list that trims": cells("edit-trims"),
    }


def claims_twice_the_frames() -> bytes:
    """Make an AVI whose header counts eighty frames, of which there are forty."""
    data = bytearray(Cell("avi", "mpeg4").make())
    for name, offset in _AVI_FRAMES_AT.items():
        at = data.index(name) + offset
        struct.pack_into("<I", data, at, 2 * struct.unpack_from("<I", data, at)[0])
    return bytes(data)


def claims_half_the_length() -> bytes:
    """Make a Matroska whose header claims half its length."""
    data = bytearray(Cell("mkv", "h264").make())
    at = data.index(_MATROSKA_DURATION) + len(_MATROSKA_DURATION)
    struct.pack_into(">d", data, at, struct.unpack_from(">d", data, at)[0] / 2)
    return bytes(data)


def kinds_of(folder: Path) -> dict[str, Files]:
    """Return the files of a folder, by their endings."""
    found: dict[str, Files] = {}
    for path in sorted(folder.glob("*"), key=lambda path: (path.suffix, path.name)):
        if path.is_file():
            found.setdefault(path.suffix, {})[path.name] = path.read_bytes
    if not found:
        raise ConfigurationError(f"There are no files in {folder}; name a folder of videos.")
    return found


def compare_kinds(compared: Mapping[str, Files]) -> dict[str, dict[str, list[str]]]:
    """Compare every sampler on every file.

    Returns:
        By kind and by outcome, which is `EQUAL` or the reasons of the differences, the names of file and sampler.
    """
    with TemporaryDirectory(prefix="reelabel-") as folder:
        requests, names = [], []
        for kind, files in compared.items():
            for name, make in files.items():
                path = Path(folder) / name.replace("/", "-")
                path.write_bytes(make())
                requests += [(path, sampling) for sampling in SAMPLINGS]
                names += [(kind, f"{name} {sampling.sampler}") for sampling in SAMPLINGS]
        choices = ask_loaders(requests)
        outcomes = [_outcome(*request, choice) for request, choice in zip(requests, choices, strict=True)]
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (kind, name), outcome in zip(names, outcomes, strict=True):
        found[kind][outcome].append(name)
    return {kind: dict(outcomes) for kind, outcomes in found.items()}


def unexplained(found: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
    """Return the names of files and samplers that differ for no known reason."""
    return [
        name
        for outcomes in found.values()
        for outcome, names in outcomes.items()
        if Reason.UNKNOWN in outcome
        for name in names
    ]


def _outcome(path: Path, sampling: Sampling, choice: LoaderChoice) -> str:
    try:
        ours = extract_local(path, sampling=sampling)
    except VideoError:
        return _REFUSED if choice.shown else _BOTH_REFUSE
    found = {reason for each in differences(ours, choice, sampling).values() for reason in each}
    return "; ".join(reason for reason in Reason if reason in found) or EQUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderChoice:
    """Result of a loader of vLLM's own on a file.

    Attributes:
        chosen: Positions of the frames that it wants, in the order shown.
        shown: Positions of those that it could read.
        total_frames: Number of frames that it counts.
        fps: Frame rate that it takes; 0.0 if unknown.
        duration_s: Duration that it takes; 0.0 if unknown.
        refusal: Why it refuses the file; empty if it does not.
    """

    chosen: list[int]
    shown: list[int]
    total_frames: int
    fps: float
    duration_s: float
    refusal: str


def ask_loaders(requests: Sequence[tuple[Path, Sampling]]) -> list[LoaderChoice]:
    """Let vLLM's loaders, each by a sampler that reproduces it, read files in a process of their own."""
    asked = [(str(path), *loader_options(sampling)) for path, sampling in requests]
    try:
        done = subprocess.run(  # noqa: S603 - our own script
            [find_python().path, "-P", str(_SCRIPT)],
            input=json.dumps(asked).encode(),
            env=engine_environment(EngineConfig(model=str(TINY_MODEL))),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"vLLM's loaders did not finish within {_TIMEOUT_S:g} s.") from None
    if done.returncode or not done.stdout:
        last_line = (done.stderr.decode(errors="replace").strip().splitlines() or ["its process died"])[-1]
        raise ConfigurationError(f"vLLM's loaders cannot be run: {last_line}")
    return [LoaderChoice(**choice) for choice in json.loads(done.stdout)]


def loader_options(sampling: Sampling) -> tuple[str, dict[str, Any]]:
    """Return the loader that a sampler reproduces, and the arguments with which it samples in the same way."""
    spec = find_sampler(sampling.sampler)
    if not spec.source.startswith(_SOURCE):
        raise ValueError(f"{spec.name} reproduces no loader of vLLM")
    options = {
        theirs: value
        for ours, theirs in _OPTIONS.items()
        if ours in spec.options and (value := getattr(sampling, ours)) is not None
    }
    if spec.name == "molmo2":
        options = _molmo2_options(sampling)
    return spec.source.removeprefix(_SOURCE), options | {"num_frames": sampling.num_frames}


def _molmo2_options(sampling: Sampling) -> dict[str, Any]:
    mode = sampling.frame_sample_mode or "uniform_last_frame"
    if mode == "every_frame":
        return {"frame_sample_mode": None}
    rate = "sampling_fps" if mode == "fps" else "max_fps"
    fps = None if sampling.fps == EVERY else sampling.fps or _MOLMO2_FPS
    return {"frame_sample_mode": mode, rate: fps}


class Reason(StrEnum):
    """Why a frame is shown by one side only, or not as often."""

    UNREADABLE = "vLLM chooses it, but cannot read it"
    REPEATED = "vLLM shows a repeated frame once"
    UNCOUNTED = "vLLM cannot tell how many frames there are"
    COUNT = "vLLM counts other frames than those that decode"
    RATE = "vLLM takes another frame rate"
    REPLACED = "Reelabel replaces frames that do not decode"
    DROPPED = "Reelabel drops similar frames"
    REFUSED = "vLLM refuses the video"
    UNKNOWN = "unknown; please report it"


def differences(ours: Frames, choice: LoaderChoice, sampling: Sampling) -> dict[int, tuple[Reason, ...]]:
    """Return why each frame that either side chooses, by its position, is shown by one only, or not as often."""
    shown, theirs = Counter(ours.selection.frame_index[ours.shown].tolist()), Counter(choice.shown)
    common = tuple(_common_reasons(ours, choice, sampling)) or (Reason.UNKNOWN,)

    def reasons(position: int) -> tuple[Reason, ...]:
        if 0 < shown[position] == theirs[position]:
            return ()
        if position in choice.chosen and position not in theirs:
            return (Reason.UNREADABLE,)
        return (Reason.REPEATED,) if choice.chosen.count(position) == shown[position] else common

    return {position: reasons(position) for position in sorted({*shown, *theirs, *choice.chosen})}


def _common_reasons(ours: Frames, choice: LoaderChoice, sampling: Sampling) -> Iterator[Reason]:
    if choice.total_frames < 1 and (choice.chosen or choice.refusal):
        yield Reason.UNCOUNTED
    elif _would_choose(choice, sampling):
        if choice.total_frames != ours.selection.total_frames:
            yield Reason.COUNT
        if abs(choice.fps - ours.selection.fps) > _RATE_TOLERANCE * ours.selection.fps:
            yield Reason.RATE
    if "replaced by" in ours.note:
        yield Reason.REPLACED
    if ours.selection.dropped_as_similar:
        yield Reason.DROPPED
    if choice.refusal:
        yield Reason.REFUSED


def _would_choose(choice: LoaderChoice, sampling: Sampling) -> bool:
    """Return whether our sampler, with the properties that vLLM reads, chooses as vLLM does."""
    try:
        known = VideoProperties(total_frames=choice.total_frames, fps=choice.fps, duration_s=choice.duration_s)
        return bool(choose_indices(sampling, known).tolist() == choice.chosen)
    except (SamplingRefusedError, ValueError):
        return not choice.chosen
