"""Which frames of a video the model sees, and at what size."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

DenseSamplerName = Literal[
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
SamplerName = Literal["keyframes", "auto", DenseSamplerName]
DEFAULT_DENSE_SAMPLER: DenseSamplerName = "uniform"
FITTED: Literal["fitted"] = "fitted"

_COVERAGE_OPTIONS = frozenset({"min_keyframes", "max_gap_s", "coverage_radius_s", "min_coverage"})
OPTIONS_OF: dict[SamplerName, frozenset[str]] = {
    "keyframes": frozenset({"escalate_below"}),
    "auto": frozenset({"escalate_below", "dense_sampler", "motion_tasks", "still_tasks"}) | _COVERAGE_OPTIONS,
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


class Sampling(BaseModel):
    """Which frames of a video the model sees, and at what size.

    An option that is None uses the sampler's default, and is omitted from the serialised form, so that adding an
    option does not change the id of specs that do not use it.
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
        Field(ge=784, le=16_777_216, description="Maximum pixels per frame; larger frames are scaled down."),
    ] = 602_112
    size_multiple_px: Annotated[
        int,
        Field(ge=1, le=128, description="Width and height of frames are multiples of this (the model's merged patch)."),
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
        DenseSamplerName | None,
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
    def _reject_options_without_effect(self) -> Self:
        """Reject options without effect, so that equivalent specs have equal ids."""
        unsupported = sorted((SAMPLER_OPTIONS - self._options) & self.model_dump().keys())
        if unsupported:
            supporting = [name for name, options in OPTIONS_OF.items() if options.issuperset(unsupported)]
            hint = f", or choose the sampler {' or '.join(supporting)}" if supporting else ""
            raise ValueError(f"the sampler {self.sampler} takes no {' and no '.join(unsupported)}; leave it out{hint}")
        if self.min_frames and self.max_frames and self.min_frames > self.max_frames:
            raise ValueError(f"min_frames ({self.min_frames}) exceeds max_frames ({self.max_frames})")
        if both := sorted({*(self.motion_tasks or ())} & {*(self.still_tasks or ())}):
            raise ValueError(f"{' and '.join(both)} cannot be in both motion_tasks and still_tasks; remove it from one")
        if isinstance(self.escalate_below, float) and not 0 <= self.escalate_below <= 1:
            raise ValueError(
                f"escalate_below {self.escalate_below:g} is not a margin; use a number from 0 to 1, or {FITTED}"
            )
        return self

    @property
    def _options(self) -> frozenset[str]:
        options = OPTIONS_OF[self.sampler]
        if self.sampler == "auto" or (self.escalate_below is not None and "escalate_below" in options):
            return options | {"dense_sampler"} | OPTIONS_OF[self.dense_sampler or DEFAULT_DENSE_SAMPLER]
        return options
