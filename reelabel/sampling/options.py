"""Which frames of a video the model sees, and at what size."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from reelabel.sampling.fields import (
    AS_DECODED,
    HOW_CHOSEN,
    HOW_MANY,
    DenseSamplerName,
    FrameRate,
    MaxPixels,
    NumFrames,
    SamplerName,
    is_not_false,
    option,
)
from reelabel.sampling.registry import (
    BUILT_IN,
    DEFAULT_DENSE_SAMPLER,
    SAMPLER_OPTIONS,
    find_dense_sampler,
    find_sampler,
    register,
    samplers,
)
from reelabel.sampling.spec import EVERY, MAX_FRAMES, SamplerSpec

FITTED: Literal["fitted"] = "fitted"
DEFAULT_NUM_FRAMES = 16


def estimate_frames(num_frames: int) -> int:
    """Return a number of frames by which to size a model's inputs, where the video decides how many there are."""
    return DEFAULT_NUM_FRAMES if num_frames == EVERY else num_frames


class SamplingOptions(BaseModel):
    """Options of sampling, all of them optional.

    An option that is None uses the sampler's default, and is omitted from the serialised form, so that adding an
    option does not change the id of specs that do not use it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sampler: Annotated[SamplerName | None, HOW_CHOSEN] = None
    fps: Annotated[
        FrameRate | None,
        option(
            "Frames per second, or -1 for the video's own rate. Defaults to 2; to 1 for llava_onevision2, "
            "minimax_m3_vl and embedding_gemma2; to no limit for uniform."
        ),
    ] = None
    max_duration_s: Annotated[
        float | None,
        option("Longest video, in seconds, that dynamic samples at fps; defaults to 300.", gt=0, le=86_400),
    ] = None
    min_frames: Annotated[int | None, option("Minimum frames for Qwen's samplers; defaults to 4.", ge=1, le=768)] = None
    max_frames: Annotated[
        int | None,
        option(
            "Maximum frames. Defaults to 768; to 640 for glmga, 2048 for glm5_next, and 32 for embedding_gemma2.",
            ge=2,
            le=MAX_FRAMES,
        ),
    ] = None
    frame_sample_mode: Annotated[
        Literal["uniform_last_frame", "fps", "every_frame"] | None,
        option("How molmo2 samples; defaults to uniform_last_frame."),
    ] = None
    frame_recovery: Annotated[
        bool | None,
        Field(
            exclude_if=is_not_false,
            description="Show the next good frame in place of one that does not decode; on by default, for dense "
            "samplers.",
        ),
    ] = None
    drop_similar: Annotated[
        float | None,
        option("Drop frames more similar than this to the last frame kept, such as 0.95; off by default.", gt=0, lt=1),
    ] = None
    jpeg_quality: Annotated[
        int | None,
        option(
            "Store frames, and show them to the model, as JPEG of this quality, such as 90 (lossy); by default every "
            "pixel is kept.",
            ge=1,
            le=100,
        ),
    ] = None
    hdr: Annotated[
        Literal["sdr", "as_decoded"] | None,
        option(
            "How HDR videos (HLG, PQ) are shown: tone-mapped to SDR, which models know (sdr, the default), or with "
            "unchanged pixel values (as_decoded)."
        ),
    ] = None
    dense_sampler: Annotated[
        DenseSamplerName | None, option("Sampler to use where keyframes are not enough; defaults to uniform.")
    ] = None
    min_keyframes: Annotated[
        int | None, option("Minimum keyframes for a video to be answered from them; defaults to 4.", ge=1, le=512)
    ] = None
    max_gap_s: Annotated[
        float | None, option("Longest time without a keyframe, in seconds; defaults to 2.5.", gt=0, le=86_400)
    ] = None
    coverage_radius_s: Annotated[
        float | None, option("Seconds before and after a keyframe that it covers; defaults to 0.5.", gt=0, le=86_400)
    ] = None
    min_coverage: Annotated[
        float | None, option("Smallest fraction of a video that keyframes must cover; defaults to 0.4.", ge=0, le=1)
    ] = None
    motion_tasks: Annotated[
        tuple[str, ...] | None, option("Tasks or subtasks whose jobs always use the dense sampler.")
    ] = None
    still_tasks: Annotated[
        tuple[str, ...] | None, option("Tasks or subtasks whose jobs always use keyframes, however few.")
    ] = None
    escalate_below: Annotated[
        float | Literal["fitted"] | None,
        option(
            "Ask again with the dense sampler if the margin of the first answer is below this, 0 to 1; fitted uses the "
            "margin found by `reelabel route fit`, 0 turns this off."
        ),
    ] = None


class Sampling(SamplingOptions):
    """Which frames of a video the model sees, and at what size."""

    sampler: Annotated[SamplerName, HOW_CHOSEN] = "keyframes"
    num_frames: Annotated[NumFrames, HOW_MANY] = DEFAULT_NUM_FRAMES
    max_pixels: Annotated[
        MaxPixels | None, option("Maximum pixels per frame; larger frames are scaled down. Without it, none is.")
    ] = None
    size_multiple_px: Annotated[
        int,
        Field(ge=1, le=128, description="Width and height of frames are multiples of this (the model's merged patch)."),
    ] = 1
    times_ms: Annotated[
        tuple[int, ...] | None,
        option(
            "Times of the frames that relevant shows, in milliseconds on the video's clock, ascending.",
            min_length=1,
            max_length=MAX_FRAMES,
        ),
    ] = None

    @field_validator("hdr")
    @classmethod
    def _leave_out_the_default(cls, hdr: str | None) -> str | None:
        """Let equivalent specs have equal ids; before, the default overrides what is set elsewhere."""
        return hdr if hdr == AS_DECODED else None

    @model_validator(mode="after")
    def _reject_options_without_effect(self) -> Self:
        """Reject options without effect, so that equivalent specs have equal ids."""
        unsupported = sorted((SAMPLER_OPTIONS - self._options) & self.model_dump().keys())
        if unsupported:
            supporting = [name for name, spec in samplers().items() if spec.options.issuperset(unsupported)]
            hint = f", or choose the sampler {' or '.join(supporting)}" if supporting else ""
            raise ValueError(f"the sampler {self.sampler} takes no {' and no '.join(unsupported)}; leave it out{hint}")
        self._reject_values_out_of_range()
        if self.times_ms and any(later <= time for time, later in pairwise(self.times_ms)):
            raise ValueError("times_ms do not increase; sort them, and name each once")
        if self.min_frames and self.max_frames and self.min_frames > self.max_frames:
            raise ValueError(f"min_frames ({self.min_frames}) exceeds max_frames ({self.max_frames})")
        if both := sorted({*(self.motion_tasks or ())} & {*(self.still_tasks or ())}):
            raise ValueError(f"{' and '.join(both)} cannot be in both motion_tasks and still_tasks; remove it from one")
        if isinstance(self.escalate_below, float) and not 0 <= self.escalate_below <= 1:
            raise ValueError(
                f"escalate_below {self.escalate_below:g} is not a margin; use a number from 0 to 1, or {FITTED}"
            )
        return self

    def _reject_values_out_of_range(self) -> None:
        """Reject values that the samplers in use do not take."""
        for spec in self._samplers:
            for name in ("num_frames", "fps"):
                takes = name in spec.options or (name == "num_frames" and spec.takes_num_frames)
                takes &= self.frame_sample_mode != "every_frame"
                if takes and getattr(self, name) == EVERY and name not in spec.unlimited:
                    raise ValueError(f"the sampler {spec.name} takes no {name} of -1; use a number greater than 0")
            for name, most in spec.at_most:
                if (value := getattr(self, name)) is not None and value > most:
                    raise ValueError(f"the sampler {spec.name} takes a {name} of at most {most:g}, not {value:g}")
        if self.frame_recovery is False and all(spec.choose is None for spec in self._samplers):
            raise ValueError(f"the sampler {self.sampler} replaces no frames; leave out frame_recovery")
        if self.frame_sample_mode == "every_frame" and self.fps is not None:
            raise ValueError("the frame_sample_mode every_frame takes no fps; leave it out")
        if self.frame_sample_mode == "fps" and self.fps == EVERY:
            raise ValueError("the frame_sample_mode fps takes no fps of -1; use a number greater than 0")

    @property
    def _options(self) -> frozenset[str]:
        options = frozenset[str]().union(*(spec.options for spec in self._samplers))
        return options | {"dense_sampler"} if len(self._samplers) > 1 else options

    @property
    def _samplers(self) -> tuple[SamplerSpec, ...]:
        """The sampler, and the dense one if it is in use."""
        spec = find_sampler(self.sampler)
        if self.sampler == "auto" or (self.escalate_below is not None and "escalate_below" in spec.options):
            return spec, find_dense_sampler(self.dense_sampler or DEFAULT_DENSE_SAMPLER)
        return (spec,)

    # A process that receives a sampling may not have imported the package that registered its samplers.
    def __getstate__(self) -> dict[Any, Any]:
        names = {self.sampler, self.dense_sampler or self.sampler} - BUILT_IN.keys()
        return super().__getstate__() | {"samplers": [find_sampler(name) for name in sorted(names)]}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        for spec in state.pop("samplers"):
            register(spec)
        super().__setstate__(state)
