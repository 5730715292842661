"""Evenly spread frames."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reelabel.sampling.spec import EVERY, SamplerSpec

if TYPE_CHECKING:
    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties


def pick_evenly(available: int, wanted: int) -> list[int]:
    """Pick frames at even spacing, first and last included.

    If there are fewer frames than picks, frames repeat evenly: their counts differ by at most one.

    Args:
        available: Number of frames to choose from; at least 1.
        wanted: Number of picks; at least 1.

    Returns:
        `wanted` indices in [0, available), ascending.

    Raises:
        ValueError: An argument is less than 1.
    """
    if available < 1 or wanted < 1:
        raise ValueError(f"cannot pick {wanted} of {available} frames")
    if available < wanted:
        return [pick * available // wanted for pick in range(wanted)]
    if wanted == 1:
        return [available // 2]
    gaps = wanted - 1
    # Round half up in integers, so that picks do not depend on floating point.
    return [(2 * pick * (available - 1) + gaps) // (2 * gaps) for pick in range(wanted)]


def sample_uniformly(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Sample `num_frames` frames, or as many as `fps` yields if that is fewer; without either limit, every frame.

    Equivalent to vLLM's loader `opencv`, and to `nemotron_vl` and `pynvvideocodec`, which choose the same frames.

    Returns:
        Frame indices; shape (M,), M >= 1, ascending, without repeats.
    """
    count = facts.total_frames
    if sampling.num_frames != EVERY:
        count = min(sampling.num_frames, count)
    if sampling.fps is not None and sampling.fps != EVERY:
        count = min(count, math.floor(facts.duration_s * sampling.fps))
    return np.linspace(0, facts.total_frames - 1, max(1, count), dtype=np.int64)


UNIFORM = SamplerSpec(
    name="uniform",
    summary="frames spread evenly over the video",
    choose=sample_uniformly,
    options=frozenset({"fps"}),
    unlimited=frozenset({"num_frames", "fps"}),
    aliases=("opencv", "nemotron_vl", "pynvvideocodec"),
    source="vLLM's loader opencv",
)
