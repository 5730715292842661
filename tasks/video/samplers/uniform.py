"""A fixed number of frames, evenly spaced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tasks.domain import Sampling
    from tasks.video.samplers.facts import Indices, VideoProperties


def sample_uniformly(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Sample `num_frames` frames, or as many as `fps` yields if that is fewer.

    Equivalent to vLLM's loader `opencv`.

    Returns:
        Frame indices; shape (M,), M >= 1, ascending, without repeats.
    """
    count = min(sampling.num_frames, facts.total_frames)
    if sampling.fps is not None:
        count = min(count, math.floor(facts.duration_s * sampling.fps))
    return np.linspace(0, facts.total_frames - 1, max(1, count), dtype=np.int64)
