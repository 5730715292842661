"""Frames that a sampler chooses of a file, against those of the vLLM loader that it reproduces."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from reelabel.errors import ConfigurationError, SamplingRefusedError
from reelabel.sampling.properties import VideoProperties
from reelabel.sampling.registry import choose_indices, find_sampler
from reelabel.sampling.spec import EVERY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.options import Sampling

_SOURCE = "vLLM's loader "
_MODULE = "reelabel.integrations.vllm.own_loader"
_OPTIONS = {"fps": "fps", "max_duration_s": "max_duration", "min_frames": "min_frames", "max_frames": "max_frames"}
_RATE_TOLERANCE = 1e-6
_MOLMO2_FPS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderChoice:
    """Result of a loader of vLLM's own on a file.

    Attributes:
        loader: Its name.
        chosen: Positions of the frames that it wants, in the order shown.
        shown: Positions of those that it could read.
        total_frames: Number of frames that it counts.
        fps: Frame rate that it takes; 0.0 if unknown.
        duration_s: Duration that it takes; 0.0 if unknown.
        refusal: Why it refuses the file; empty if it does not.
    """

    loader: str
    chosen: list[int]
    shown: list[int]
    total_frames: int
    fps: float
    duration_s: float
    refusal: str


def loader_options(sampling: Sampling) -> tuple[str, dict[str, Any]]:
    """Return the loader that a sampler reproduces, and the arguments with which it samples in the same way.

    Raises:
        ValueError: The sampler reproduces none.
    """
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


def ask_loaders(
    requests: Sequence[tuple[Path, Sampling]],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    python: str,
) -> list[LoaderChoice]:
    """Let vLLM's loaders, each by a sampler that reproduces it, read files in a process of their own.

    Most of the seconds allowed go into importing vLLM, which `python` has.

    Raises:
        ConfigurationError: vLLM cannot be imported, or the process fails or takes too long.
    """
    asked = [(str(path), sampling.to_dict()) for path, sampling in requests]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            [python, "-P", "-m", _MODULE],
            input=json.dumps(asked).encode(),
            env=environment,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"vLLM's loaders did not finish within {timeout_s:g} s.") from None
    if done.returncode or not done.stdout:
        last_line = (done.stderr.decode(errors="replace").strip().splitlines() or ["its process died"])[-1]
        raise ConfigurationError(f"vLLM's loaders cannot be run: {last_line}")
    return [LoaderChoice(**choice) for choice in json.loads(done.stdout)]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFrame:
    """One frame that either side chooses.

    Attributes:
        position: Its position in the linear decode.
        ours: How often Reelabel shows it.
        theirs: How often vLLM shows it.
        reasons: Why the two differ; empty if they do not.
    """

    position: int
    ours: int
    theirs: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Reelabel's choice of a video against vLLM's.

    Attributes:
        choice: What vLLM does.
        frames: The frames that either chooses, in the order of their positions.
    """

    choice: LoaderChoice
    frames: tuple[ComparedFrame, ...]

    @property
    def reasons(self) -> list[Reason]:
        """Every reason of a difference, once."""
        found = {reason for frame in self.frames for reason in frame.reasons}
        return [reason for reason in Reason if reason in found]


def compare(ours: SampledFrames, choice: LoaderChoice, sampling: Sampling) -> Comparison:
    """Compare a sampler's frames with those of the loader that it reproduces, and explain why they differ."""
    shown, theirs = Counter(ours.frame_index[ours.picks].tolist()), Counter(choice.shown)
    common = tuple(_common_reasons(ours, choice, sampling)) or (Reason.UNKNOWN,)

    def reasons(position: int) -> tuple[Reason, ...]:
        if 0 < shown[position] == theirs[position]:
            return ()
        if position in choice.chosen and position not in theirs:
            return (Reason.UNREADABLE,)
        return (Reason.REPEATED,) if choice.chosen.count(position) == shown[position] else common

    frames = tuple(
        ComparedFrame(position=position, ours=shown[position], theirs=theirs[position], reasons=reasons(position))
        for position in sorted({*shown, *theirs, *choice.chosen})
    )
    return Comparison(choice=choice, frames=frames)


def _common_reasons(ours: SampledFrames, choice: LoaderChoice, sampling: Sampling) -> Iterator[Reason]:
    if choice.total_frames < 1 and (choice.chosen or choice.refusal):
        yield Reason.UNCOUNTED
    elif _would_choose(choice, sampling):
        if choice.total_frames != ours.total_frames:
            yield Reason.COUNT
        if abs(choice.fps - ours.fps) > _RATE_TOLERANCE * ours.fps:
            yield Reason.RATE
    if "replaced by" in ours.reason:
        yield Reason.REPLACED
    if ours.dropped_as_similar:
        yield Reason.DROPPED
    if choice.refusal:
        yield Reason.REFUSED


def _would_choose(choice: LoaderChoice, sampling: Sampling) -> bool:
    try:
        facts = VideoProperties(total_frames=choice.total_frames, fps=choice.fps, duration_s=choice.duration_s)
        return bool(choose_indices(sampling, facts).tolist() == choice.chosen)
    except (SamplingRefusedError, ValueError):
        return not choice.chosen
