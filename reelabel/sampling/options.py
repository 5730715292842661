"""Which frames of a video the model sees, and at what size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import core_schema

from reelabel.sampling.registry import (
    BUILT_IN,
    DEFAULT_DENSE_SAMPLER,
    SAMPLER_OPTIONS,
    dense_samplers,
    find_dense_sampler,
    find_sampler,
    register,
    samplers,
)

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.config import JsonDict
    from pydantic.json_schema import JsonSchemaValue

FITTED: Literal["fitted"] = "fitted"
_IGNORE_NUM_FRAMES = [name for name, spec in BUILT_IN.items() if not spec.takes_num_frames]


class _Registered:
    """Annotation of a sampler's name: validated against the registry, and an enum in the JSON schema."""

    def __init__(self, *, dense: bool) -> None:
        self._is_dense = dense

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:  # noqa: ANN401
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"enum": [*(dense_samplers() if self._is_dense else samplers())]}

    def _check(self, name: str) -> str:
        return (find_dense_sampler(name) if self._is_dense else find_sampler(name)).name


SamplerName = Annotated[str, _Registered(dense=False)]
DenseSamplerName = Annotated[str, _Registered(dense=True)]


def _list_samplers(schema: JsonDict) -> None:
    schema["description"] = f"{schema['description']} {describe_samplers()}"


def describe_samplers() -> str:
    """Return the samplers with their summaries, as a sentence for help and forms."""
    return f"One of {', '.join(f'{name} ({spec.summary})' for name, spec in samplers().items())}."


# Shared by the models that have these fields, with different defaults.
HOW_CHOSEN = Field(description="How frames are chosen.", json_schema_extra=_list_samplers)
HOW_MANY = Field(
    description="Frames per video; the maximum for uniform, molmo2 and openpangu; "
    f"ignored by {', '.join(_IGNORE_NUM_FRAMES[:-1])} and {_IGNORE_NUM_FRAMES[-1]}."
)
NumFrames = Annotated[int, Field(ge=1, le=512)]
MaxPixels = Annotated[int, Field(ge=784, le=16_777_216)]


def _is_unset(value: object) -> bool:
    return value is None


class SamplingOptions(BaseModel):
    """Options of sampling, all of them optional.

    An option that is None uses the sampler's default, and is omitted from the serialised form, so that adding an
    option does not change the id of specs that do not use it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sampler: Annotated[SamplerName | None, HOW_CHOSEN] = None
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


class Sampling(SamplingOptions):
    """Which frames of a video the model sees, and at what size."""

    sampler: Annotated[SamplerName, HOW_CHOSEN] = "keyframes"
    num_frames: Annotated[NumFrames, HOW_MANY] = 16
    max_pixels: Annotated[MaxPixels, Field(description="Maximum pixels per frame; larger frames are scaled down.")] = (
        602_112
    )
    size_multiple_px: Annotated[
        int,
        Field(ge=1, le=128, description="Width and height of frames are multiples of this (the model's merged patch)."),
    ] = 28

    @model_validator(mode="after")
    def _reject_options_without_effect(self) -> Self:
        """Reject options without effect, so that equivalent specs have equal ids."""
        unsupported = sorted((SAMPLER_OPTIONS - self._options) & self.model_dump().keys())
        if unsupported:
            supporting = [name for name, spec in samplers().items() if spec.options.issuperset(unsupported)]
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
        options: frozenset[str] = find_sampler(self.sampler).options
        if self.sampler == "auto" or (self.escalate_below is not None and "escalate_below" in options):
            dense = find_dense_sampler(self.dense_sampler or DEFAULT_DENSE_SAMPLER)
            return options | {"dense_sampler"} | dense.options
        return options

    # A process that receives a sampling may not have imported the package that registered its samplers.
    def __getstate__(self) -> dict[Any, Any]:
        names = {self.sampler, self.dense_sampler or self.sampler} - BUILT_IN.keys()
        return super().__getstate__() | {"samplers": [find_sampler(name) for name in sorted(names)]}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        for spec in state.pop("samplers"):
            register(spec)
        super().__setstate__(state)
