"""Settings of which frames the model sees; see `tasks.domain.spec.Sampling`, which says the same."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.section import Section

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


class SamplingChoice(Section):
    """How frames are chosen; what is empty is as the settings have it, or as the sampler does by itself."""

    sampler: Annotated[SamplerName | None, Field(description="How frames are chosen.")] = None
    fps: Annotated[
        float | None,
        Field(gt=0, le=240, description="Frames a second; empty is 2, for uniform no limit."),
    ] = None
    max_duration_s: Annotated[
        float | None,
        Field(gt=0, le=86_400, description="Seconds up to which dynamic samples by fps; empty is 300."),
    ] = None
    min_frames: Annotated[
        int | None, Field(ge=1, le=768, description="Fewest frames of Qwen's samplers; empty is 4.")
    ] = None
    max_frames: Annotated[
        int | None, Field(ge=2, le=768, description="Most frames of fps and Qwen's samplers; empty is 768.")
    ] = None
    frame_sample_mode: Annotated[
        Literal["uniform_last_frame", "fps"] | None,
        Field(description="How molmo2 samples; empty is uniform_last_frame."),
    ] = None
    drop_similar: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Drop a frame that is more similar than this to the last one kept, such as 0.95; empty is off.",
        ),
    ] = None
    jpeg_quality: Annotated[
        int | None,
        Field(
            ge=1,
            le=100,
            description="Store frames as JPEG of this quality, such as 90, and show the model those: lossy; "
            "empty keeps every pixel.",
        ),
    ] = None
    lossless: Annotated[
        LosslessName | None, Field(description="What samples where keyframes are not enough; empty is uniform.")
    ] = None
    min_keyframes: Annotated[
        int | None, Field(ge=1, le=512, description="Fewest keyframes that are enough; empty is 4.")
    ] = None
    max_gap_s: Annotated[
        float | None, Field(gt=0, le=86_400, description="Longest time without a keyframe, in seconds; empty is 2.5.")
    ] = None
    near_s: Annotated[
        float | None,
        Field(gt=0, le=86_400, description="Seconds within which a keyframe stands for what is shown; empty is 0.5."),
    ] = None
    min_cover: Annotated[
        float | None,
        Field(ge=0, le=1, description="Least share of a video that is as near to a keyframe; empty is 0.4."),
    ] = None
    motion_tasks: Annotated[
        tuple[str, ...] | None,
        Field(description="Tasks or subtasks whose jobs are never shown keyframes alone."),
    ] = None
    still_tasks: Annotated[
        tuple[str, ...] | None,
        Field(description="Tasks or subtasks that any frame answers: their jobs are shown keyframes, however few."),
    ] = None
    cascade: Annotated[
        float | Literal["fitted"] | None,
        Field(
            description="Ask again by the lossless sampler where the margin of the first answer is below this, 0 to 1; "
            "fitted takes what `reelabel route fit` found, 0 asks none again.",
        ),
    ] = None


class SamplingSettings(SamplingChoice):
    """Which frames the model sees; see `tasks.domain.spec.Sampling`, which says the same."""

    sampler: Annotated[SamplerName, Field(description="How frames are chosen.")] = "keyframes"
    num_frames: Annotated[
        int,
        Field(
            ge=1,
            le=512,
            description="Frames shown to the model per video; the most of them for uniform, molmo2 and openpangu; "
            "without effect on dynamic, fps, glm46v and Qwen's.",
        ),
    ] = 16
    max_pixels: Annotated[
        int | None,
        Field(ge=784, le=16_777_216, description="Most pixels of one frame; empty takes the model's own limit."),
    ] = None
