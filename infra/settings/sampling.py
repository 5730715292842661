"""Settings of frame sampling, the section `[sampling]`: the library's options, with this project's defaults."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.settings.base import SettingsSection
from reelabel.sampling import options
from reelabel.sampling.fields import (
    HOW_CHOSEN,
    HOW_MANY,
    AskedDenseSamplerName,
    AskedSamplerName,
    MaxPixels,
    NumFrames,
    option,
)


class SamplingOptions(SettingsSection, options.SamplingOptions):
    """Sampling options; those left empty are taken from the settings, or from the sampler's defaults.

    Here a model is known, so that `native` can stand for the sampler that it was trained with.
    """

    sampler: Annotated[AskedSamplerName | None, HOW_CHOSEN] = None
    num_frames: Annotated[NumFrames | None, HOW_MANY] = None
    dense_sampler: Annotated[
        AskedDenseSamplerName | None,
        option(
            "Sampler to use where keyframes are not enough; defaults to native, the one that the model was trained "
            "with."
        ),
    ] = None


class SamplingSettings(SamplingOptions):
    """Which frames the model sees."""

    sampler: Annotated[AskedSamplerName, HOW_CHOSEN] = "keyframes"
    num_frames: Annotated[NumFrames, HOW_MANY] = 16
    max_pixels: Annotated[
        MaxPixels | None, Field(description="Maximum pixels per frame; defaults to the model's limit.")
    ] = None
