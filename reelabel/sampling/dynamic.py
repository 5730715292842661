"""A fixed frame rate up to a maximum duration, and a fixed number of frames beyond it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel.sampling.spec import SamplerSpec

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties

_FPS = 2.0
_MAX_DURATION_S = 300.0


def sample_dynamically(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Sample at `fps` up to `max_duration_s`; spread `fps * max_duration_s` frames over longer videos.

    Equivalent to vLLM's loader `opencv_dynamic`, which follows GLM-4V's video processor in transformers.

    Returns:
        Frame indices; shape (M,), ascending, without repeats; empty if the video is shorter than one step.
    """
    fps = sampling.fps or _FPS
    max_duration_s = sampling.max_duration_s or _MAX_DURATION_S
    if facts.length_s <= max_duration_s:
        steps = np.arange(math.floor(facts.length_s * fps))
        return _round_up(steps * facts.fps / fps, facts)
    count = int(max_duration_s * fps)
    if count >= facts.total_frames:
        return np.arange(facts.total_frames)
    return _round_up(np.linspace(0, facts.length_s, count) * facts.fps, facts)


def _round_up(positions: npt.NDArray[np.floating[Any]], facts: VideoProperties) -> Indices:
    """Round fractional positions up to existing frames."""
    # Clipped before the conversion: a bogus duration may exceed 64 bits.
    return np.unique(np.minimum(np.ceil(positions), facts.total_frames - 1).astype(np.int64))


DYNAMIC = SamplerSpec(
    name="dynamic",
    summary="a fixed rate up to a duration, a fixed number of frames beyond it",
    choose=sample_dynamically,
    options=frozenset({"fps", "max_duration_s"}),
    takes_num_frames=False,
    processors=("Glm4vVideoProcessor",),
    model_types=("glm4v",),
    aliases=("opencv_dynamic",),
    source="vLLM's loader opencv_dynamic",
)
