"""Which frames of a video the model sees, and at what size."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from reelabel.options import check_options, conflict, is_none, option, to_dict
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

if TYPE_CHECKING:
    from collections.abc import Sequence

FITTED: Literal["fitted"] = "fitted"
AS_DECODED: Literal["as_decoded"] = "as_decoded"
DEFAULT_NUM_FRAMES = 16

_IGNORE_NUM_FRAMES = [name for name, spec in BUILT_IN.items() if not spec.uses_num_frames]


def estimate_frames(num_frames: int) -> int:
    """Return the number of frames to size a model's inputs by; an estimate if the video determines it."""
    return DEFAULT_NUM_FRAMES if num_frames == EVERY else num_frames


# In addition to the bounds, which cannot exclude the values between -1 and 1.
def _check_count(count: int) -> int:
    if count < 1 and count != EVERY:
        raise ValueError("must be at least 1, or -1 for every frame")
    return count


def _check_rate(fps: float) -> float:
    if fps <= 0 and fps != EVERY:
        raise ValueError("must be greater than 0, or -1 for the rate of the video itself")
    return fps


def _leave_out_sdr(hdr: str) -> str | None:
    """Omit the default, so that equivalent specs have equal ids; until then, it overrides values set elsewhere."""
    return hdr if hdr == AS_DECODED else None


def _is_not_false(value: object) -> bool:
    """Return whether an option that is on by default is not switched off; specs then omit it."""
    return value is not False


def _unset(description: str, **about: Any) -> Any:  # noqa: ANN401 - as of `option`
    return option(None, description, exclude_if=is_none, **about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Which frames of a video the model sees, and at what size.

    An option that is None uses the sampler's default, and is omitted by `to_dict`, so that adding an option does not
    change the id of specs that do not use it.
    """

    sampler: str = option("keyframes", "How frames are chosen.", check=lambda name: find_sampler(name).name)
    fps: float | None = _unset(
        "Frames per second, or -1 for the video's own rate. Defaults to 2; to 1 for llava_onevision2, "
        "minimax_m3_vl and embedding_gemma2; to no limit for uniform.",
        ge=EVERY,
        le=240,
        check=_check_rate,
    )
    max_duration_s: float | None = _unset(
        "Longest video, in seconds, that dynamic samples at fps; defaults to 300.", gt=0, le=86_400
    )
    min_frames: int | None = _unset("Minimum frames for Qwen's samplers; defaults to 4.", ge=1, le=768)
    max_frames: int | None = _unset(
        "Maximum frames. Defaults to 768; to 640 for glmga, 2048 for glm5_next, and 32 for embedding_gemma2.",
        ge=2,
        le=MAX_FRAMES,
    )
    frame_sample_mode: Literal["uniform_last_frame", "fps", "every_frame"] | None = _unset(
        "How molmo2 samples; defaults to uniform_last_frame."
    )
    frame_recovery: bool | None = option(
        None,
        "With dense samplers, replace a frame that does not decode by the next good one; on by default.",
        exclude_if=_is_not_false,
    )
    drop_similar: float | None = _unset(
        "Drop frames that are more similar than this to the last one not dropped, such as 0.95; off by default.",
        gt=0,
        lt=1,
    )
    jpeg_quality: int | None = _unset(
        "Store frames, and show them to the model, as JPEG of this quality, such as 90 (lossy); lossless by default.",
        ge=1,
        le=100,
    )
    hdr: Literal["sdr", "as_decoded"] | None = _unset(
        "How HDR videos (HLG, PQ) are shown: tone-mapped to SDR, which models expect (sdr, the default), or with "
        "unchanged pixel values (as_decoded).",
        check=_leave_out_sdr,
    )
    dense_sampler: str | None = _unset(
        "Sampler to use where keyframes are not enough; defaults to uniform.",
        check=lambda name: find_dense_sampler(name).name,
    )
    min_keyframes: int | None = _unset(
        "Minimum keyframes for a video to be answered from them; defaults to 4.", ge=1, le=512
    )
    max_gap_s: float | None = _unset("Longest time without a keyframe, in seconds; defaults to 2.5.", gt=0, le=86_400)
    coverage_radius_s: float | None = _unset(
        "Seconds before and after a keyframe that it covers; defaults to 0.5.", gt=0, le=86_400
    )
    min_coverage: float | None = _unset(
        "Smallest fraction of a video that keyframes must cover; defaults to 0.4.", ge=0, le=1
    )
    motion_tasks: tuple[str, ...] | None = _unset("Tasks or subtasks whose jobs always use the dense sampler.")
    still_tasks: tuple[str, ...] | None = _unset("Tasks or subtasks whose jobs always use keyframes, however few.")
    escalate_below: float | Literal["fitted"] | None = _unset(
        "Rerun a job with the dense sampler if its margin is below this, 0 to 1; fitted uses the margin found by "
        "`reelabel route fit`, 0 turns this off."
    )
    num_frames: int = option(
        DEFAULT_NUM_FRAMES,
        "Frames per video, or -1 for every frame (with keyframes, every keyframe); the maximum for uniform, molmo2, "
        "openpangu and llava_onevision2; "
        f"ignored by {', '.join(_IGNORE_NUM_FRAMES[:-1])} and {_IGNORE_NUM_FRAMES[-1]}.",
        ge=EVERY,
        le=MAX_FRAMES,
        check=_check_count,
    )
    max_pixels: int | None = _unset(
        "Maximum pixels per frame; larger frames are scaled down. Without it, none is.", ge=784, le=16_777_216
    )
    size_multiple_px: int = option(
        1, "Width and height of frames are multiples of this (the model's merged patch).", ge=1, le=128
    )
    times_ms: tuple[int, ...] | None = _unset(
        "Times of the frames that relevant shows, in milliseconds on the video's clock, ascending.",
        min_length=1,
        max_length=MAX_FRAMES,
    )

    def __post_init__(self) -> None:
        check_options(self, Sampling)
        fault = self._find_option_without_effect() or self._find_value_out_of_range() or self._find_contradiction()
        if fault:
            raise conflict(self, fault)

    def to_dict(self) -> dict[str, Any]:
        """Return the options that are set, by name; they identify the sampling."""
        return to_dict(self)

    # Each of these returns a clause, empty if there is no such fault.

    def _find_option_without_effect(self) -> str:
        # Refused, so that equivalent specs have equal ids.
        unsupported = sorted((SAMPLER_OPTIONS - self._options) & self.to_dict().keys())
        if not unsupported:
            return ""
        supporting = [name for name, spec in samplers().items() if spec.options.issuperset(unsupported)]
        hint = f", or choose the sampler {' or '.join(supporting)}" if supporting else ""
        return f"the sampler {self.sampler} takes no {' and no '.join(unsupported)}; leave it out{hint}"

    def _find_contradiction(self) -> str:
        if self.times_ms and any(later <= time for time, later in pairwise(self.times_ms)):
            return "times_ms do not increase; sort them, and name each once"
        if self.min_frames and self.max_frames and self.min_frames > self.max_frames:
            return f"min_frames ({self.min_frames}) exceeds max_frames ({self.max_frames})"
        if both := sorted({*(self.motion_tasks or ())} & {*(self.still_tasks or ())}):
            return f"{' and '.join(both)} cannot be in both motion_tasks and still_tasks; remove it from one"
        if isinstance(self.escalate_below, float) and not 0 <= self.escalate_below <= 1:
            return f"escalate_below {self.escalate_below:g} is not a margin; use a number from 0 to 1, or {FITTED}"
        return ""

    def _find_value_out_of_range(self) -> str:
        for spec in self._samplers:
            for name in ("num_frames", "fps"):
                takes = name in spec.options or (name == "num_frames" and spec.uses_num_frames)
                takes &= self.frame_sample_mode != "every_frame"
                if takes and getattr(self, name) == EVERY and name not in spec.unlimited:
                    return f"the sampler {spec.name} takes no {name} of -1; use a number greater than 0"
            for name, most in spec.at_most:
                if (value := getattr(self, name)) is not None and value > most:
                    return f"the sampler {spec.name} takes a {name} of at most {most:g}, not {value:g}"
        if self.frame_recovery is False and all(spec.choose is None for spec in self._samplers):
            return f"the sampler {self.sampler} replaces no frames; leave out frame_recovery"
        if self.frame_sample_mode == "every_frame" and self.fps is not None:
            return "the frame_sample_mode every_frame takes no fps; leave it out"
        if self.frame_sample_mode == "fps" and self.fps == EVERY:
            return "the frame_sample_mode fps takes no fps of -1; use a number greater than 0"
        return ""

    @property
    def _options(self) -> frozenset[str]:
        options = frozenset[str]().union(*(spec.options for spec in self._samplers))
        return options | {"dense_sampler"} if len(self._samplers) > 1 else options

    @property
    def _samplers(self) -> tuple[SamplerSpec, ...]:
        spec = find_sampler(self.sampler)
        if self.sampler == "auto" or (self.escalate_below is not None and "escalate_below" in spec.options):
            return spec, find_dense_sampler(self.dense_sampler or DEFAULT_DENSE_SAMPLER)
        return (spec,)

    # A process that receives a sampling may not have imported the package that registered its samplers.
    def __reduce__(self) -> tuple[Any, ...]:
        names = {self.sampler, self.dense_sampler or self.sampler} - BUILT_IN.keys()
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return _restore, ([find_sampler(name) for name in sorted(names)], values)


def _restore(specs: Sequence[SamplerSpec], values: dict[str, Any]) -> Sampling:
    for spec in specs:
        register(spec)
    return Sampling(**values)


def check_no_job_options(sampling: Sampling) -> Sampling:
    """Return a sampling that depends on videos only; raise ValueError if it depends on the tasks or answers of jobs."""
    by_jobs = [
        name for name in ("escalate_below", "motion_tasks", "still_tasks") if getattr(sampling, name) is not None
    ]
    if by_jobs:
        names = " and ".join(by_jobs)
        raise ValueError(f"{names} cannot be used without jobs and answers; leave it out")
    return sampling


def dense_pass(sampling: Sampling) -> Sampling:
    """Return the sampling of the dense pass, for when keyframes are not enough."""
    return with_sampler(sampling, sampling.dense_sampler or DEFAULT_DENSE_SAMPLER)


def resolve_auto(sampling: Sampling, *, is_good: bool) -> Sampling:
    """Resolve `auto` for a video, by whether its keyframes cover it."""
    return with_sampler(sampling, "keyframes") if is_good else dense_pass(sampling)


@lru_cache(maxsize=64)  # a run resolves the same few for every job
def with_sampler(sampling: Sampling, sampler: str) -> Sampling:
    """Return a sampling with one sampler only, and only the options that it takes."""
    spec = find_sampler(sampler)
    excluded = SAMPLER_OPTIONS - spec.options | {"escalate_below"}
    if spec.choose is None:
        excluded |= {"frame_recovery"}
    unset: dict[str, Any] = dict.fromkeys(excluded)
    return replace(sampling, sampler=sampler, **unset)
