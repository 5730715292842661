"""The sampling that GLM-4.6V was trained with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tasks.domain import Sampling
    from tasks.video.samplers.facts import Indices, SourceFacts

_FPS_UP_TO_S = ((30.0, 3.0), (300.0, 1.0), (2400.0, 0.5))  # the longer the video, the fewer a second
_MAX_DURATION_S = _FPS_UP_TO_S[-1][0]
_MAX_FRAMES = 640
_TEMPORAL_PATCH = 2  # frames that the model merges into one


def sample_glm46v(sampling: Sampling, facts: SourceFacts) -> Indices:  # noqa: ARG001 - the model leaves no choice
    """Take 6, 2 or 1 frames a second by the video's length, an even number up to 640.

    As vLLM's loader `glm46v` does, which follows GLM-4.6V's video processor in transformers.

    Returns:
        Shape (M,), ascending, the last repeated where M would be odd; empty where the video is shorter
        than a step.
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


def _walk(facts: SourceFacts, *, step_s: float) -> Indices:
    """Take the first frame, then at each whole step the first frame at or after it that is not taken yet.

    Returns:
        Shape (M,), M >= 1, strictly ascending.
    """
    end_s = int(facts.length_s)
    most = min(facts.total_frames, int(end_s / step_s) + 2)
    # Summed up, not multiplied: the original adds, and so do its rounding errors.
    due_s = np.cumsum(np.r_[0.0, np.full(most - 1, step_s)])
    due_s = due_s[: max(1, np.searchsorted(due_s, end_s))]
    times_s = np.arange(facts.total_frames) * (1 / facts.fps if facts.fps else 0.0)
    turn = np.arange(len(due_s))
    # A frame is taken once: later steps that fall on it go on to the frames behind it.
    taken = np.maximum.accumulate(np.searchsorted(times_s, due_s) - turn) + turn
    indices: Indices = taken[taken < facts.total_frames]
    return indices
