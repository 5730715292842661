"""Everything on the run's side that can change an answer."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasks.domain.digest import digest_of

DEFAULT_TEMPLATE = "{prompt}\n{choices}\nAnswer with the option's letter from the given choices directly."


LosslessName = Literal[
    "uniform",
    "dynamic",
    "qwen2_vl",
    "qwen3_vl",
    "glm46v",
    "molmo2",
    "openpangu",
    "fps",
    "num_frames",
]
SamplerName = Literal["keyframes", "auto", LosslessName]
USUAL_LOSSLESS: LosslessName = "uniform"
FITTED: Literal["fitted"] = "fitted"

_ENOUGH = frozenset({"min_keyframes", "max_gap_s", "coverage_radius_s", "min_coverage"})
OPTIONS_OF: dict[SamplerName, frozenset[str]] = {
    "keyframes": frozenset({"escalate_below"}),
    "auto": frozenset({"escalate_below", "dense_sampler", "motion_tasks", "still_tasks"}) | _ENOUGH,
    "uniform": frozenset({"fps"}),
    "dynamic": frozenset({"fps", "max_duration_s"}),
    "qwen2_vl": frozenset({"fps", "min_frames", "max_frames"}),
    "qwen3_vl": frozenset({"fps", "min_frames", "max_frames"}),
    "glm46v": frozenset(),
    "molmo2": frozenset({"fps", "frame_sample_mode"}),
    "openpangu": frozenset({"fps"}),
    "fps": frozenset({"fps", "max_frames"}),
    "num_frames": frozenset(),
}
SAMPLER_OPTIONS = frozenset.union(*OPTIONS_OF.values())
ROUTING_OPTIONS = OPTIONS_OF["auto"]


def _is_unset(value: object) -> bool:
    return value is None


def _is_video(value: object) -> bool:
    return value == "video"


def _is_one(value: object) -> bool:
    return value == 1


class Sampling(BaseModel):
    """Which frames of a video the model sees, and at what size.

    An option left empty takes the sampler's own number and is left out of the serialised form, so that
    a new option changes the identity of no spec that does without it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sampler: Annotated[SamplerName, Field(description="How frames are chosen.")] = "keyframes"
    num_frames: Annotated[
        int,
        Field(
            ge=1,
            le=512,
            description="Frames per video; the maximum for uniform, molmo2 and openpangu; "
            "ignored by dynamic, fps, glm46v and Qwen's samplers.",
        ),
    ] = 16
    max_pixels: Annotated[
        int,
        Field(ge=784, le=16_777_216, description="Most pixels of one frame; larger frames are scaled down."),
    ] = 602_112
    size_multiple_px: Annotated[
        int,
        Field(ge=1, le=128, description="Width and height are multiples of this (the model's merged patch)."),
    ] = 28
    fps: Annotated[
        float | None,
        Field(
            gt=0,
            le=240,
            exclude_if=_is_unset,
            description="Frames per second; defaults to 2, and for uniform to no limit.",
        ),
    ] = None
    max_duration_s: Annotated[
        float | None,
        Field(
            gt=0,
            le=86_400,
            exclude_if=_is_unset,
            description="Longest video, in seconds, that dynamic samples at fps; defaults to 300.",
        ),
    ] = None
    min_frames: Annotated[
        int | None,
        Field(ge=1, le=768, exclude_if=_is_unset, description="Minimum frames for Qwen's samplers; defaults to 4."),
    ] = None
    max_frames: Annotated[
        int | None,
        Field(
            ge=2,
            le=768,
            exclude_if=_is_unset,
            description="Maximum frames for fps and Qwen's samplers; defaults to 768.",
        ),
    ] = None
    frame_sample_mode: Annotated[
        Literal["uniform_last_frame", "fps"] | None,
        Field(exclude_if=_is_unset, description="How molmo2 samples; defaults to uniform_last_frame."),
    ] = None
    drop_similar: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            exclude_if=_is_unset,
            description="Drop frames more similar than this to the last frame kept, such as 0.95; off by default.",
        ),
    ] = None
    jpeg_quality: Annotated[
        int | None,
        Field(
            ge=1,
            le=100,
            exclude_if=_is_unset,
            description="Store frames, and show them to the model, as JPEG of this quality, such as 90 (lossy); "
            "by default every pixel is kept.",
        ),
    ] = None
    dense_sampler: Annotated[
        LosslessName | None,
        Field(exclude_if=_is_unset, description="Sampler to use where keyframes are not enough; defaults to uniform."),
    ] = None
    min_keyframes: Annotated[
        int | None,
        Field(
            ge=1,
            le=512,
            exclude_if=_is_unset,
            description="Minimum keyframes for a video to be answered from them; defaults to 4.",
        ),
    ] = None
    max_gap_s: Annotated[
        float | None,
        Field(
            gt=0,
            le=86_400,
            exclude_if=_is_unset,
            description="Longest time without a keyframe, in seconds; defaults to 2.5.",
        ),
    ] = None
    coverage_radius_s: Annotated[
        float | None,
        Field(
            gt=0,
            le=86_400,
            exclude_if=_is_unset,
            description="Seconds before and after a keyframe that it covers; defaults to 0.5.",
        ),
    ] = None
    min_coverage: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            exclude_if=_is_unset,
            description="Smallest fraction of a video that keyframes must cover; defaults to 0.4.",
        ),
    ] = None
    motion_tasks: Annotated[
        tuple[str, ...] | None,
        Field(exclude_if=_is_unset, description="Tasks or subtasks whose jobs always use the dense sampler."),
    ] = None
    still_tasks: Annotated[
        tuple[str, ...] | None,
        Field(
            exclude_if=_is_unset,
            description="Tasks or subtasks whose jobs always use keyframes, however few.",
        ),
    ] = None
    escalate_below: Annotated[
        float | Literal["fitted"] | None,
        Field(
            exclude_if=_is_unset,
            description="Ask again with the dense sampler if the margin of the first answer is below this, 0 to 1; "
            "fitted uses the margin found by `reelabel route fit`, 0 turns this off.",
        ),
    ] = None

    @model_validator(mode="after")
    def _refuse_what_has_no_effect(self) -> Self:
        """Keep two specs that mean the same from looking different."""
        stray = sorted((SAMPLER_OPTIONS - self._options) & self.model_dump().keys())
        if stray:
            takers = [name for name, options in OPTIONS_OF.items() if options.issuperset(stray)]
            hint = f", or choose the sampler {' or '.join(takers)}" if takers else ""
            raise ValueError(f"the sampler {self.sampler} takes no {' and no '.join(stray)}; leave it out{hint}")
        if self.min_frames and self.max_frames and self.min_frames > self.max_frames:
            raise ValueError(f"min_frames ({self.min_frames}) is more than max_frames ({self.max_frames})")
        if both := sorted({*(self.motion_tasks or ())} & {*(self.still_tasks or ())}):
            raise ValueError(f"{' and '.join(both)} cannot be in motion_tasks and in still_tasks; leave one out")
        if isinstance(self.escalate_below, float) and not 0 <= self.escalate_below <= 1:
            raise ValueError(
                f"escalate_below {self.escalate_below:g} is not a margin; use a number from 0 to 1, or {FITTED}"
            )
        return self

    @property
    def _options(self) -> frozenset[str]:
        options = OPTIONS_OF[self.sampler]
        if self.sampler == "auto" or (self.escalate_below is not None and "escalate_below" in options):
            return options | {"dense_sampler"} | OPTIONS_OF[self.dense_sampler or USUAL_LOSSLESS]
        return options


class ModelIdentity(BaseModel):
    """Which weights answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, description="Hub name, or the folder's last name.")]
    revision: Annotated[str | None, Field(description="Hub revision.")] = None
    fingerprint: Annotated[str | None, Field(description="Content hash of a local model folder.")] = None
    dtype: Annotated[str, Field(description="Numeric type of the weights as served.")] = "auto"
    served_at: Annotated[
        str | None,
        Field(exclude_if=_is_unset, description="The server whose name for it is all that is known of the weights."),
    ] = None


class RunSpec(BaseModel):
    """One way of asking. Two runs with equal specs share their results."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelIdentity
    sampling: Sampling = Sampling()
    template: Annotated[
        str, Field(description="Question layout of every job without its own; {prompt} and {choices} are filled in.")
    ] = DEFAULT_TEMPLATE
    system_prompt: Annotated[str | None, Field(description="System message of every job without its own.")] = None
    examples: Annotated[
        str | None,
        Field(exclude_if=_is_unset, description="Solved examples before the question of every job without its own."),
    ] = None
    choice_scoring: Annotated[
        Literal["letter", "text"],
        Field(description="Answer by the choice's letter, or by the first token of its own text."),
    ] = "letter"
    permutations: Annotated[
        int,
        Field(
            ge=1,
            le=26,
            exclude_if=_is_one,
            description="Orders in which a question's choices are shown, at most as many as it has choices; "
            "their probabilities are averaged.",
        ),
    ] = 1

    frames_as: Annotated[
        Literal["video", "images"],
        Field(exclude_if=_is_video, description="What the model is told the frames are; images have no times."),
    ] = "video"

    @cached_property
    def spec_id(self) -> str:
        """Hash of the whole spec, 16 hex digits."""
        return digest_of(self.model_dump(mode="json"))[:16]
