"""The native sampler of Molmo 2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import SamplingRefusedError
from reelabel.sampling.spec import EVERY, SamplerSpec

if TYPE_CHECKING:
    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties

_FPS = 2.0
_MAX_FPS = 8
_MIN_SPACED_FRAMES = 3  # shorter videos are sampled whole


def sample_molmo2(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Sample up to `num_frames` frames according to `frame_sample_mode`, or every frame.

    Equivalent to vLLM's loader `molmo2`, which follows Molmo 2's video processor. `fps` is its `max_fps` in the mode
    `uniform_last_frame`, where `EVERY` stands for none, and its `sampling_fps` in the mode `fps`: each mode reads one.

    Returns:
        Frame indices; shape (M,), M >= 1, ascending.

    Raises:
        SamplingRefusedError: The frame rate is unknown or incompatible with `fps`.
    """
    if sampling.frame_sample_mode == "every_frame":
        return np.arange(facts.total_frames)
    if sampling.frame_sample_mode == "fps":
        return _sample_by_divisor(sampling, facts)
    return _sample_to_last_frame(sampling, facts)


def _sample_to_last_frame(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Sample every 1 / `fps` seconds and add the last frame; if those are too many, spread `num_frames` evenly."""
    fps, last = sampling.fps or _FPS, facts.total_frames - 1
    if facts.total_frames < _MIN_SPACED_FRAMES and fps != EVERY:
        return np.arange(facts.total_frames)
    if fps == EVERY or facts.duration_s > (sampling.num_frames - 1) / fps:
        return np.linspace(0, last, min(sampling.num_frames, facts.total_frames), dtype=np.int64)
    facts.require_rate("molmo2", instead="fps")
    step = facts.fps / fps
    # Checked before allocation: a bogus duration could request any number of frames.
    if math.ceil(last / step) <= sampling.num_frames:
        spaced = np.arange(0.0, last, step)
        if np.round(spaced[-1]) != last:
            spaced = np.append(spaced, last)
        if len(spaced) <= sampling.num_frames:
            return np.round(spaced).astype(np.int64)
    raise SamplingRefusedError(
        f"The sampler molmo2 cannot sample this video: {facts.total_frames:,} frames at {facts.fps:g} fps contradict "
        f"its duration of {facts.duration_s:g} s; use the sampler uniform.",
    )


def _sample_by_divisor(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Take every k-th frame, at the highest rate up to 8 fps at which `num_frames` span the video.

    Candidate rates are the multiples of `fps` that divide the video's own frame rate, all truncated to integers. At
    the lowest rate, frames beyond `num_frames` are dropped.
    """
    own, lowest = int(facts.fps), int(sampling.fps or _FPS)  # `EVERY` is refused below: it is less than 1
    if own < 1 or lowest < 1 or own % lowest:
        raise SamplingRefusedError(
            f"The sampler molmo2 needs an fps that divides the video's frame rate ({facts.fps:g}), and "
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


MOLMO2 = SamplerSpec(
    name="molmo2",
    summary="as Molmo 2 was trained",
    choose=sample_molmo2,
    options=frozenset({"fps", "frame_sample_mode"}),
    unlimited=frozenset({"fps"}),
    processors=("Molmo2VideoProcessor",),
    source="vLLM's loader molmo2",
)
