"""Which frames the model sees, and how long videos are cut into chunks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from infra.settings.types import SAMPLER_FIELD, DenseSamplerName, SamplerName, SettingsSection, sampling_option
from infra.text_bounds import MAX_CHOICE

_SHORTEST_CHUNK_S = 1.0


class SamplingDefaults(SettingsSection):
    """Sampling options of a run that also have a setting."""

    sampler: Annotated[SamplerName | None, SAMPLER_FIELD] = None
    num_frames: Annotated[int | None, sampling_option("num_frames")] = None
    fps: Annotated[float | None, sampling_option("fps")] = None
    drop_similar: Annotated[float | None, sampling_option("drop_similar")] = None
    jpeg_quality: Annotated[int | None, sampling_option("jpeg_quality")] = None
    hdr: Annotated[Literal["sdr", "as_decoded"] | None, sampling_option("hdr", check=None)] = None
    escalate_below: Annotated[float | Literal["fitted"] | None, sampling_option("escalate_below")] = None


class SamplingOptions(SamplingDefaults):
    """Sampling options; those left empty are taken from the settings, or from the sampler's defaults.

    Here a model is known, so that `native` can stand for the sampler that it was trained with.
    """

    max_duration_s: Annotated[float | None, sampling_option("max_duration_s")] = None
    min_frames: Annotated[int | None, sampling_option("min_frames")] = None
    max_frames: Annotated[int | None, sampling_option("max_frames")] = None
    frame_sample_mode: Annotated[
        Literal["uniform_last_frame", "fps", "every_frame"] | None, sampling_option("frame_sample_mode")
    ] = None
    frame_recovery: Annotated[bool | None, sampling_option("frame_recovery")] = None
    dense_sampler: Annotated[
        DenseSamplerName | None,
        sampling_option(
            "dense_sampler",
            check=None,
            description="Sampler to use if keyframes are not enough; defaults to native, the one that the model was "
            "trained with.",
        ),
    ] = None
    min_keyframes: Annotated[int | None, sampling_option("min_keyframes")] = None
    max_gap_s: Annotated[float | None, sampling_option("max_gap_s")] = None
    coverage_radius_s: Annotated[float | None, sampling_option("coverage_radius_s")] = None
    min_coverage: Annotated[float | None, sampling_option("min_coverage")] = None
    motion_tasks: Annotated[tuple[str, ...] | None, sampling_option("motion_tasks")] = None
    still_tasks: Annotated[tuple[str, ...] | None, sampling_option("still_tasks")] = None


class SamplingSettings(SamplingDefaults):
    """Which frames the model sees. Runs have further options."""

    sampler: Annotated[SamplerName, SAMPLER_FIELD] = "keyframes"
    num_frames: Annotated[int, sampling_option("num_frames")] = 16
    max_pixels: Annotated[
        int | None,
        sampling_option(
            "max_pixels", exclude_if=None, description="Maximum pixels per frame; defaults to the model's limit."
        ),
    ] = None


class ChunkOptions(SettingsSection):
    """How jobs on long videos are cut into jobs on consecutive chunks, and how their answers are aggregated."""

    chunk_s: float | None = Field(None, ge=0, le=86_400)
    """Ask about each chunk of this many seconds of a video; off (0) by default."""
    chunk_rule: str | None = Field(None, min_length=1, max_length=len("any:") + MAX_CHOICE)
    """How the answers are aggregated: majority (default), mean of the probabilities, or any:CHOICE if one suffices."""

    @field_validator("chunk_s")
    @classmethod
    def _is_long_enough(cls, chunk_s: float | None) -> float | None:
        if chunk_s is not None and 0 < chunk_s < _SHORTEST_CHUNK_S:
            raise ValueError(f"use at least {_SHORTEST_CHUNK_S:g} second, or 0 to cut nothing")
        return chunk_s
