"""The sampling that Molmo 2 was trained with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from infra.errors import SamplingRefusedError

if TYPE_CHECKING:
    from tasks.domain import Sampling
    from tasks.video.samplers.facts import Indices, SourceFacts

_FPS = 2.0
_MAX_FPS = 8
_FEWEST_SPACED = 3  # a video of fewer frames is shown whole


def sample_molmo2(sampling: Sampling, facts: SourceFacts) -> Indices:
    """Take up to `num_frames`, at most `fps` a second, by `frame_sample_mode`.

    As vLLM's loader `molmo2` does, which follows Molmo 2's video processor.

    Returns:
        Shape (M,), M >= 1, ascending.

    Raises:
        SamplingRefusedError: The frame rate is unknown or does not suit `fps`.
    """
    if sampling.frame_sample_mode == "fps":
        return _sample_by_divisor(sampling, facts)
    return _sample_to_last_frame(sampling, facts)


def _sample_to_last_frame(sampling: Sampling, facts: SourceFacts) -> Indices:
    """Space frames by 1 / `fps` and add the last; where they are too many, spread `num_frames`."""
    fps, last = sampling.fps or _FPS, facts.total_frames - 1
    if facts.total_frames < _FEWEST_SPACED:
        return np.arange(facts.total_frames)
    if facts.duration_s > (sampling.num_frames - 1) / fps:
        return np.linspace(0, last, min(sampling.num_frames, facts.total_frames), dtype=np.int64)
    if facts.fps == 0:
        raise SamplingRefusedError("The sampler molmo2 needs the frame rate, which the video does not tell; use fps.")
    step = facts.fps / fps
    # Counted before they are made: a wrong duration would ask for any number.
    if math.ceil(last / step) <= sampling.num_frames:
        spaced = np.arange(0.0, last, step)
        if np.round(spaced[-1]) != last:
            spaced = np.append(spaced, last)
        if len(spaced) <= sampling.num_frames:
            return np.round(spaced).astype(np.int64)
    raise SamplingRefusedError(
        f"The sampler molmo2 finds that {facts.total_frames:,} frames at {facts.fps:g} fps do not fit the video's "
        f"duration of {facts.duration_s:g} s; use uniform.",
    )


def _sample_by_divisor(sampling: Sampling, facts: SourceFacts) -> Indices:
    """Take every k-th frame, at the highest rate up to 8 that spans the video with `num_frames`.

    Rates are multiples of `fps` that divide the video's own, all cut to whole numbers. At the lowest,
    frames beyond `num_frames` are left out.
    """
    own, lowest = int(facts.fps), int(sampling.fps or _FPS)
    if own < 1 or lowest < 1 or own % lowest:
        raise SamplingRefusedError(
            f"The sampler molmo2 takes a whole frame rate that divides the video's ({facts.fps:g}), which "
            f"{sampling.fps or _FPS:g} does not; set another fps, or frame_sample_mode to uniform_last_frame.",
        )
    step, taken = 0, 0
    for rate in range(lowest, min(own, _MAX_FPS) + 1, lowest):
        if own % rate == 0:
            candidate = max(int(facts.fps / rate), 1)
            count = facts.total_frames // candidate
            if taken == 0 or taken < count <= sampling.num_frames:
                step, taken = candidate, count
    if step == 0:
        return np.linspace(0, facts.total_frames, sampling.num_frames, endpoint=False, dtype=np.int64)
    return np.arange(0, facts.total_frames, step)[: sampling.num_frames]
