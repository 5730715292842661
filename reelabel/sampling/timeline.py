"""Sampling by presentation time: the frames nearest to given instants, also at variable frame rates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reelabel.sampling.uniform import sample_uniformly

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties

_FPS = 2.0
_MAX_FRAMES = 768
_TOLERANCE = 1e-6  # of a step, for rounding: the last instant may fall just past the last frame


def sample_on_timeline(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Take the frame nearest to each instant of the samplers `fps` and `num_frames`.

    With `fps`, instants start at the first frame; if there are more than `max_frames`, that many are spread over the
    video. With `num_frames`, they are spread from the first frame to the last. If the video has neither timestamps
    nor a frame rate, frames are sampled uniformly.

    Returns:
        Frame indices; shape (M,), M >= 1, in presentation order; a frame repeats if it is nearest to several instants.
    """
    times_s = _times_s(facts)
    if times_s is None:
        return sample_uniformly(sampling.model_copy(update={"fps": None}), facts)
    return _nearest(times_s, _targets_s(sampling, times_s))


def deviations_s(sampling: Sampling, facts: VideoProperties) -> npt.NDArray[np.float64] | None:
    """Return the deviation of each sampled frame from its instant, for the samplers `fps` and `num_frames`.

    Returns:
        Seconds, negative if the frame is earlier; shape (M,), float64. None for other samplers, which target no
        instants, and if times are unknown.
    """
    times_s = _times_s(facts)
    if sampling.sampler not in {"fps", "num_frames"} or times_s is None:
        return None
    targets_s = _targets_s(sampling, times_s)
    deviations: npt.NDArray[np.float64] = times_s[_nearest(times_s, targets_s)] - targets_s
    return deviations


def _times_s(facts: VideoProperties) -> npt.NDArray[np.float64] | None:
    if facts.times_s is not None:
        return facts.times_s
    return np.arange(facts.total_frames) / facts.fps if facts.fps else None


def _targets_s(sampling: Sampling, times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    first_s, last_s = float(times_s.min()), float(times_s.max())
    if sampling.sampler == "num_frames":
        return np.linspace(first_s, last_s, sampling.num_frames)
    fps, most = sampling.fps or _FPS, sampling.max_frames or _MAX_FRAMES
    count = math.floor((last_s - first_s) * fps + _TOLERANCE) + 1
    return first_s + np.arange(count) / fps if count <= most else np.linspace(first_s, last_s, most)


def _nearest(times_s: npt.NDArray[np.float64], targets_s: npt.NDArray[np.float64]) -> Indices:
    """Find the frame nearest to each instant; ties go to the earlier frame."""
    order = np.argsort(times_s, kind="stable")  # frames of damaged files may be out of order
    ordered_s = times_s[order]
    after = np.searchsorted(ordered_s, targets_s).clip(max=len(order) - 1)
    before = (after - 1).clip(min=0)
    is_before = targets_s - ordered_s[before] <= ordered_s[after] - targets_s
    nearest: Indices = order[np.where(is_before, before, after)]
    return nearest
