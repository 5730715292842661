"""Settings of frame sampling, the section `[sampling]`; fields match `reelabel.sampling.options.Sampling`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.settings.base import SettingsSection

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


class SamplingOptions(SettingsSection):
    """Sampling options; those left empty are taken from the settings, or from the sampler's defaults."""

    sampler: Annotated[SamplerName | None, Field(description="How frames are chosen.")] = None
    num_frames: Annotated[
        int | None,
        Field(
            ge=1,
            le=512,
            description="Frames per video; the maximum for uniform, molmo2 and openpangu; "
            "ignored by dynamic, fps, glm46v and Qwen's samplers.",
        ),
    ] = None
    fps: Annotated[
        float | None,
        Field(gt=0, le=240, description="Frames per second; defaults to 2, and for uniform to no limit."),
    ] = None
    max_duration_s: Annotated[
        float | None,
        Field(gt=0, le=86_400, description="Longest video, in seconds, that dynamic samples at fps; defaults to 300."),
    ] = None
    min_frames: Annotated[
        int | None, Field(ge=1, le=768, description="Minimum frames for Qwen's samplers; defaults to 4.")
    ] = None
    max_frames: Annotated[
        int | None, Field(ge=2, le=768, description="Maximum frames for fps and Qwen's samplers; defaults to 768.")
    ] = None
    frame_sample_mode: Annotated[
        Literal["uniform_last_frame", "fps"] | None,
        Field(description="How molmo2 samples; defaults to uniform_last_frame."),
    ] = None
    drop_similar: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Drop frames more similar than this to the last frame kept, such as 0.95; off by default.",
        ),
    ] = None
    jpeg_quality: Annotated[
        int | None,
        Field(
            ge=1,
            le=100,
            description="Store frames, and show them to the model, as JPEG of this quality, such as 90 (lossy); "
            "by default every pixel is kept.",
        ),
    ] = None
    dense_sampler: Annotated[
        DenseSamplerName | None,
        Field(description="Sampler to use where keyframes are not enough; defaults to uniform."),
    ] = None
    min_keyframes: Annotated[
        int | None,
        Field(ge=1, le=512, description="Minimum keyframes for a video to be answered from them; defaults to 4."),
    ] = None
    max_gap_s: Annotated[
        float | None,
        Field(gt=0, le=86_400, description="Longest time without a keyframe, in seconds; defaults to 2.5."),
    ] = None
    coverage_radius_s: Annotated[
        float | None,
        Field(gt=0, le=86_400, description="Seconds before and after a keyframe that it covers; defaults to 0.5."),
    ] = None
    min_coverage: Annotated[
        float | None,
        Field(ge=0, le=1, description="Smallest fraction of a video that keyframes must cover; defaults to 0.4."),
    ] = None
    motion_tasks: Annotated[
        tuple[str, ...] | None,
        Field(description="Tasks or subtasks whose jobs always use the dense sampler."),
    ] = None
    still_tasks: Annotated[
        tuple[str, ...] | None,
        Field(description="Tasks or subtasks whose jobs always use keyframes, however few."),
    ] = None
    escalate_below: Annotated[
        float | Literal["fitted"] | None,
        Field(
            description="Ask again with the dense sampler if the margin of the first answer is below this, 0 to 1; "
            "fitted uses the margin found by `reelabel route fit`, 0 turns this off.",
        ),
    ] = None


class SamplingSettings(SamplingOptions):
    """Which frames the model sees; fields match `reelabel.sampling.options.Sampling`."""

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
        int | None,
        Field(ge=784, le=16_777_216, description="Maximum pixels per frame; defaults to the model's limit."),
    ] = None
