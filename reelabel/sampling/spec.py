"""The record that describes a sampler, and the properties of a video that samplers receive."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from reelabel.errors import SamplingRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    _FloatArray: TypeAlias = npt.NDArray[np.float64]

Indices: TypeAlias = npt.NDArray[np.int64]
ChooseFrames: TypeAlias = "Callable[[SamplerOptions, VideoProperties], Indices]"
TargetInstants: TypeAlias = "Callable[[SamplerOptions, _FloatArray], _FloatArray]"

# Value of `num_frames`, or of `fps`, that sets no limit: every frame, or the rate of the video itself.
EVERY = -1
MAX_FRAMES = 2048  # of one video; the most that a loader of vLLM shows by default
Unlimited = Literal["num_frames", "fps"]

# Fields of `Sampling` that only some samplers take.
DenseOption = Literal["fps", "max_duration_s", "min_frames", "max_frames", "frame_sample_mode", "times_ms"]
RoutingOption = Literal[
    "escalate_below",
    "dense_sampler",
    "motion_tasks",
    "still_tasks",
    "min_keyframes",
    "max_gap_s",
    "coverage_radius_s",
    "min_coverage",
]


class SamplerOptions(Protocol):
    """The options of `reelabel.sampling.options.Sampling` that samplers read."""

    @property
    def sampler(self) -> str: ...
    @property
    def num_frames(self) -> int: ...
    @property
    def fps(self) -> float | None: ...
    @property
    def max_duration_s(self) -> float | None: ...
    @property
    def min_frames(self) -> int | None: ...
    @property
    def max_frames(self) -> int | None: ...
    @property
    def frame_sample_mode(self) -> str | None: ...
    @property
    def times_ms(self) -> tuple[int, ...] | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSpec:
    """A sampler: how it chooses frames, which options it takes, and which models were trained with it.

    Attributes:
        name: What users write: lowercase letters, digits and underscores. It is part of the spec of every run that
            uses the sampler, so a sampler that starts to choose other frames needs another name.
        summary: A phrase for `--help` and forms, such as "frames spread evenly over the video".
        choose: Return the positions of the chosen frames among those of a full linear decode. None for `keyframes` and
            `auto`, which do not choose from all frames; those with a function are the dense samplers, except where
            `needs_question`.
        options: Names of the options that `choose` reads, besides `num_frames`; other options are refused.
        uses_num_frames: Whether `choose` reads `num_frames`.
        unlimited: Which of `num_frames` and `fps` may be `EVERY`.
        default_fps: The rate at which it samples unless another is asked for; None if it needs no rate.
        at_most: The largest value of an option, where the sampler allows less than others.
        instants_s: Return the instants that the sampler targets, given the frames' presentation times, in the order
            of the chosen frames; both in seconds, float64. Frames then come with their deviations from it.
        processors: Hugging Face classes of the video processors of models trained with the sampler.
        model_types: `model_type` of such models whose configuration names no video processor.
        yields_to_num_frames: Whether such a model whose processor states `num_frames` was trained with that many
            uniform frames instead.
        needs_question: Whether the frames depend on the question, so that an application chooses them, and passes their
            `times_ms`. Such a sampler is no dense sampler for `auto` and escalation.
        aliases: vLLM's names of it, which users may write as well.
        source: What it reproduces, such as "vLLM's loader qwen2_vl"; empty if it is original.
    """

    name: str
    summary: str
    choose: ChooseFrames | None = None
    options: frozenset[DenseOption | RoutingOption] = frozenset()
    uses_num_frames: bool = True
    unlimited: frozenset[Unlimited] = frozenset()
    default_fps: float | None = None
    at_most: tuple[tuple[DenseOption, float], ...] = ()
    instants_s: TargetInstants | None = None
    processors: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    yields_to_num_frames: bool = False
    needs_question: bool = False
    aliases: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VideoProperties:
    """The properties of a video stream that determine which frames are sampled.

    vLLM's loaders use OpenCV's: its frame rate, and the frame count divided by it as the duration. Pass the same to
    sample the same frames as vLLM.

    Attributes:
        total_frames: Number of frames output by a full linear decode; at least 1.
        fps: Frames per second; 0.0 if unknown.
        duration_s: Duration in seconds; 0.0 if unknown.
        width_px: Width as stored; 0 if unknown.
        height_px: Height as stored; 0 if unknown.
        times_s: Presentation time of each frame in seconds, never falling; shape (total_frames,), float64; None if
            frames are evenly spaced or their times are unknown.
    """

    total_frames: int
    fps: float
    duration_s: float
    width_px: int = 0
    height_px: int = 0
    times_s: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if self.total_frames < 1:
            raise ValueError(f"total_frames must be at least 1, got {self.total_frames}")
        if not all(math.isfinite(value) and value >= 0 for value in (self.fps, self.duration_s)):
            raise ValueError(
                f"fps and duration_s must be finite and non-negative, got {self.fps} and {self.duration_s}"
            )
        if self.times_s is None:
            return
        if self.times_s.shape != (self.total_frames,) or not np.isfinite(self.times_s).all():
            raise ValueError(f"times_s must be {self.total_frames} finite numbers, got shape {self.times_s.shape}")
        if (np.diff(self.times_s) < 0).any():
            raise ValueError("times_s must never fall")

    def check_rate(self, sampler: str, *, instead: str) -> None:
        """Raise SamplingRefusedError for a video without a frame rate, and name a sampler that needs none."""
        if self.fps == 0:
            raise SamplingRefusedError(
                f"The sampler {sampler} needs a frame rate, which the video lacks; use the sampler {instead}."
            )

    @property
    def length_s(self) -> float:
        """The duration, estimated from the frame rate if unknown; 0 if that is unknown too.

        The estimate is that of GLM's video processors in transformers.
        """
        if self.duration_s or not self.fps:
            return self.duration_s
        return round((self.total_frames - 1) / self.fps) + 1
