"""Settings of frame sampling, the section `[sampling]`: the library's options, with this project's defaults."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.settings.base import SettingsSection
from reelabel.sampling import options
from reelabel.sampling.options import HOW_CHOSEN, HOW_MANY, MaxPixels, NumFrames, SamplerName


class SamplingOptions(SettingsSection, options.SamplingOptions):
    """Sampling options; those left empty are taken from the settings, or from the sampler's defaults."""

    num_frames: Annotated[NumFrames | None, HOW_MANY] = None


class SamplingSettings(SamplingOptions):
    """Which frames the model sees."""

    sampler: Annotated[SamplerName, HOW_CHOSEN] = "keyframes"
    num_frames: Annotated[NumFrames, HOW_MANY] = 16
    max_pixels: Annotated[
        MaxPixels | None, Field(description="Maximum pixels per frame; defaults to the model's limit.")
    ] = None
