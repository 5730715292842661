"""The record that describes a sampler to everything that uses samplers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties

    _FloatArray: TypeAlias = npt.NDArray[np.float64]

ChooseFrames: TypeAlias = "Callable[[Sampling, VideoProperties], Indices]"
TargetInstants: TypeAlias = "Callable[[Sampling, _FloatArray], _FloatArray]"

# Value of `num_frames`, or of `fps`, that sets no limit: every frame, or the rate of the video itself.
EVERY = -1
MAX_FRAMES = 2048  # of one video; the most that a loader of vLLM shows by default
Unlimited = Literal["num_frames", "fps"]

# Fields of `SamplingOptions` that only some samplers take.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSpec:
    """A sampler: how it chooses frames, which options it takes, and which models were trained with it.

    Attributes:
        name: What users write: lowercase letters, digits and underscores. It is part of the spec of every run that
            uses the sampler, so a sampler that starts to choose other frames needs another name.
        summary: A phrase for `--help` and forms, such as "frames spread evenly over the video".
        choose: Return the positions of the chosen frames among those of a full linear decode. None for `keyframes` and
            `auto`, which do not choose from all frames; those with a function are the dense samplers, except where
            `asks_the_question`.
        options: Names of the options that `choose` reads, besides `num_frames`; other options are refused.
        takes_num_frames: Whether `choose` reads `num_frames`.
        unlimited: Which of `num_frames` and `fps` may be `EVERY`.
        default_fps: The rate at which it samples unless another is asked for; None if it needs no rate.
        at_most: The largest value of an option, where the sampler allows less than others.
        instants_s: Return the instants that the sampler targets, given the frames' presentation times, in the order
            of the chosen frames; both in seconds, float64. Frames then come with their deviations from it.
        processors: Hugging Face classes of the video processors of models trained with the sampler.
        model_types: `model_type` of such models whose configuration names no video processor.
        yields_to_num_frames: Whether such a model whose processor states `num_frames` was trained with that many
            uniform frames instead.
        asks_the_question: Whether the frames depend on what a job asks, so that an application chooses them, and names
            them by `times_ms`. Such a sampler is no dense sampler for `auto` and escalation.
        aliases: vLLM's names of it, which users may write as well.
        source: What it reproduces, such as "vLLM's loader qwen2_vl"; empty if it is original.
    """

    name: str
    summary: str
    choose: ChooseFrames | None = None
    options: frozenset[DenseOption | RoutingOption] = frozenset()
    takes_num_frames: bool = True
    unlimited: frozenset[Unlimited] = frozenset()
    default_fps: float | None = None
    at_most: tuple[tuple[DenseOption, float], ...] = ()
    instants_s: TargetInstants | None = None
    processors: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    yields_to_num_frames: bool = False
    asks_the_question: bool = False
    aliases: tuple[str, ...] = ()
    source: str = ""
