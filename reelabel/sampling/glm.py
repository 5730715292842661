"""The native sampler of GLM-4.6V."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel.sampling.spec import SamplerSpec

if TYPE_CHECKING:
    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties

_FPS_UP_TO_S = ((30.0, 3.0), (300.0, 1.0), (2400.0, 0.5))  # lower frame rates for longer videos
_MAX_DURATION_S = _FPS_UP_TO_S[-1][0]
_MAX_FRAMES = 640
_TEMPORAL_PATCH = 2  # frames per temporal patch of the model


def sample_glm46v(sampling: Sampling, facts: VideoProperties) -> Indices:  # noqa: ARG001 - the model leaves no choice
    """Sample 6, 2 or 1 frames per second depending on the duration, an even number up to 640.

    Equivalent to vLLM's loader `glm46v`, which follows GLM-4.6V's video processor in transformers.

    Returns:
        Frame indices; shape (M,), ascending, the last repeated if M would be odd; empty if the video is shorter than
        one step.
    """
    length_s = min(facts.length_s, _MAX_DURATION_S)
    fps = next(fps for up_to_s, fps in _FPS_UP_TO_S if length_s <= up_to_s)
    count = min(int(length_s * fps * _TEMPORAL_PATCH), _MAX_FRAMES)
    indices = _walk(facts, step_s=1 / (_TEMPORAL_PATCH * fps))
    if facts.total_frames < count or len(indices) > count:
        indices = np.linspace(0, facts.total_frames - 1, count, dtype=np.int64)
    elif len(indices) < count:
        indices = np.linspace(indices[0], indices[-1], count, dtype=np.int64)
    unique = np.unique(indices)
    return np.append(unique, unique[-1:]) if len(unique) % _TEMPORAL_PATCH else unique


def _walk(facts: VideoProperties, *, step_s: float) -> Indices:
    """Take the first frame, then for each step the first unused frame at or after it.

    Returns:
        Frame indices; shape (M,), M >= 1, strictly ascending.
    """
    end_s = int(facts.length_s)
    most = min(facts.total_frames, int(end_s / step_s) + 2)
    # Accumulated rather than multiplied, to reproduce the original's rounding errors.
    due_s = np.cumsum(np.r_[0.0, np.full(most - 1, step_s)])
    due_s = due_s[: max(1, np.searchsorted(due_s, end_s))]
    times_s = np.arange(facts.total_frames) * (1 / facts.fps if facts.fps else 0.0)
    step = np.arange(len(due_s))
    # Each frame is used once: a later step that falls on a used frame moves on to the next unused one.
    taken = np.maximum.accumulate(np.searchsorted(times_s, due_s) - step) + step
    indices: Indices = taken[taken < facts.total_frames]
    return indices


GLM46V = SamplerSpec(
    name="glm46v",
    summary="as GLM-4.6V was trained",
    choose=sample_glm46v,
    takes_num_frames=False,
    processors=("Glm46VVideoProcessor",),
    source="vLLM's loader glm46v",
)
