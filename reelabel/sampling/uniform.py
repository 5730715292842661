"""Evenly spread frames: a number of them, or a fixed rate up to a maximum duration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel.sampling.spec import EVERY, Indices, SamplerOptions, SamplerSpec, VideoProperties

if TYPE_CHECKING:
    import numpy.typing as npt


def pick_evenly(available: int, wanted: int) -> list[int]:
    """Pick `wanted` indices in [0, available) at even spacing, first and last included, ascending.

    If there are fewer frames than picks, frames repeat evenly: their counts differ by at most one.
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


def sample_uniformly(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Sample `num_frames` frames, or as many as `fps` yields if that is fewer; without either limit, every frame.

    Equivalent to vLLM's loader `opencv`, and to `nemotron_vl` and `pynvvideocodec`, which choose the same frames.
    Returns frame indices, shape (M,), M >= 1, ascending, without repeats.
    """
    count = video.total_frames
    if sampling.num_frames != EVERY:
        count = min(sampling.num_frames, count)
    if sampling.fps is not None and sampling.fps != EVERY:
        count = min(count, math.floor(video.duration_s * sampling.fps))
    return spread_evenly(video, count)


def spread_evenly(video: VideoProperties, count: int) -> Indices:
    return np.linspace(0, video.total_frames - 1, max(1, count), dtype=np.int64)


UNIFORM = SamplerSpec(
    name="uniform",
    summary="frames spread evenly over the video",
    choose=sample_uniformly,
    options=frozenset({"fps"}),
    unlimited=frozenset({"num_frames", "fps"}),
    aliases=("opencv", "nemotron_vl", "pynvvideocodec"),
    source="vLLM's loader opencv",
)


_DYNAMIC_FPS = 2.0
_DYNAMIC_MAX_S = 300.0


def sample_dynamically(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Sample at `fps` up to `max_duration_s`; spread `fps * max_duration_s` frames over longer videos.

    Equivalent to vLLM's loader `opencv_dynamic`, which follows GLM-4V's video processor in transformers. Returns frame
    indices; shape (M,), ascending, without repeats; empty if the video is shorter than one step.
    """
    fps = sampling.fps or _DYNAMIC_FPS
    max_duration_s = sampling.max_duration_s or _DYNAMIC_MAX_S
    if video.length_s <= max_duration_s:
        steps = np.arange(math.floor(video.length_s * fps))
        return _round_up(steps * video.fps / fps, video)
    count = int(max_duration_s * fps)
    if count >= video.total_frames:
        return np.arange(video.total_frames)
    return _round_up(np.linspace(0, video.length_s, count) * video.fps, video)


def _round_up(positions: npt.NDArray[np.floating[Any]], video: VideoProperties) -> Indices:
    # Clipped before the conversion: a bogus duration may exceed 64 bits.
    return np.unique(np.minimum(np.ceil(positions), video.total_frames - 1).astype(np.int64))


DYNAMIC = SamplerSpec(
    name="dynamic",
    summary="a fixed rate up to a duration, a fixed number of frames beyond it",
    choose=sample_dynamically,
    options=frozenset({"fps", "max_duration_s"}),
    uses_num_frames=False,
    processors=("Glm4vVideoProcessor",),
    model_types=("glm4v",),
    aliases=("opencv_dynamic",),
    source="vLLM's loader opencv_dynamic",
)
