"""Sampling by presentation time: the frames nearest to given instants, also at variable frame rates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import SamplingRefusedError
from reelabel.sampling.spec import EVERY, Indices, SamplerOptions, SamplerSpec, TargetInstants, VideoProperties
from reelabel.sampling.uniform import spread_evenly

if TYPE_CHECKING:
    import numpy.typing as npt


_FPS = 2.0
_MAX_FRAMES = 768
_TOLERANCE = 1e-6  # of a step, for rounding: the last instant may fall just past the last frame
_TIE_S = 1e-6  # instants and times are rounded, so that a tie is seldom exact


def sample_at_rate(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Take the frame nearest to each instant of a fixed rate.

    Instants start at the first frame; if there are more than `max_frames`, that many are spread over the video. With
    `EVERY` as the rate, each frame's own time is an instant. If the video has neither timestamps nor a frame rate,
    frames are sampled uniformly. Returns frame indices, shape (M,), M >= 1, in presentation order; a frame repeats if
    it is nearest to several instants.
    """
    if sampling.fps == EVERY and video.total_frames <= _most(sampling):
        return _every_frame(video)
    return _sample_at(_instants_of_rate_s, sampling, video)


def sample_count(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Take the frame nearest to each of `num_frames` instants, spread from the first frame to the last.

    With `EVERY`, take every frame. If the video has neither timestamps nor a frame rate, frames are sampled uniformly.
    Returns frame indices, shape (M,), M >= 1, in presentation order; a frame repeats if it is nearest to several
    instants.
    """
    if sampling.num_frames == EVERY:
        return _every_frame(video)
    return _sample_at(_spread_instants_s, sampling, video)


def sample_middles(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Take the frame nearest to the middle of each of `num_frames` equal parts of the time that the frames fill.

    The last frame fills as much as the others do, by the median. If the video has neither timestamps nor a frame rate,
    frames are sampled uniformly. Returns frame indices, shape (M,), M >= 1, in presentation order; a frame repeats if
    it is nearest to several instants.
    """
    return _sample_at(_middle_instants_s, sampling, video)


def _every_frame(video: VideoProperties) -> Indices:
    # Not by time: of frames that share one, only the first would be nearest to it.
    return np.arange(video.total_frames)


def _most(sampling: SamplerOptions) -> int:
    return sampling.max_frames or _MAX_FRAMES


def _sample_at(instants_s: TargetInstants, sampling: SamplerOptions, video: VideoProperties) -> Indices:
    times_s = presentation_times_s(video)
    if times_s is None:
        wanted = _most(sampling) if sampling.fps == EVERY else sampling.num_frames
        return spread_evenly(video, video.total_frames if wanted == EVERY else min(wanted, video.total_frames))
    return nearest_frames(times_s, instants_s(sampling, times_s))


def _instants_of_rate_s(sampling: SamplerOptions, times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    first_s, last_s = float(times_s[0]), float(times_s[-1])
    fps, most = sampling.fps or _FPS, _most(sampling)
    if fps == EVERY:
        return times_s if len(times_s) <= most else np.linspace(first_s, last_s, most)
    count = math.floor((last_s - first_s) * fps + _TOLERANCE) + 1
    return first_s + np.arange(count) / fps if count <= most else np.linspace(first_s, last_s, most)


def _spread_instants_s(sampling: SamplerOptions, times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if sampling.num_frames == EVERY:
        return times_s
    return np.linspace(float(times_s[0]), float(times_s[-1]), sampling.num_frames)


def _middle_instants_s(sampling: SamplerOptions, times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    last_s = float(np.median(np.diff(times_s))) if len(times_s) > 1 else 0.0
    part_s = (float(times_s[-1] - times_s[0]) + last_s) / sampling.num_frames
    return np.asarray(times_s[0] + (np.arange(sampling.num_frames) + 0.5) * part_s, np.float64)


def presentation_times_s(video: VideoProperties) -> npt.NDArray[np.float64] | None:
    """Return the presentation time of each frame, by the frame rate if there are no timestamps; None without either."""
    if video.times_s is not None:
        return video.times_s
    return np.arange(video.total_frames) / video.fps if video.fps else None


def nearest_frames(times_s: npt.NDArray[np.float64], targets_s: npt.NDArray[np.float64]) -> Indices:
    """Find the frame nearest to each instant; ties go to the earlier frame."""
    after = np.searchsorted(times_s, targets_s).clip(max=len(times_s) - 1)
    before = (after - 1).clip(min=0)
    is_before = targets_s - times_s[before] <= times_s[after] - targets_s + _TIE_S
    nearest: Indices = np.where(is_before, before, after)
    return nearest


FPS = SamplerSpec(
    name="fps",
    summary="the frames nearest to instants at a fixed rate, even at a variable frame rate",
    choose=sample_at_rate,
    options=frozenset({"fps", "max_frames"}),
    uses_num_frames=False,
    default_fps=_FPS,
    unlimited=frozenset({"fps"}),
    instants_s=_instants_of_rate_s,
)
NUM_FRAMES = SamplerSpec(
    name="num_frames",
    summary="the frames nearest to evenly spread instants, even at a variable frame rate",
    choose=sample_count,
    unlimited=frozenset({"num_frames"}),
    instants_s=_spread_instants_s,
)
MIDDLES = SamplerSpec(
    name="middles",
    summary="the frames nearest to the middles of equal parts, even at a variable frame rate",
    choose=sample_middles,
    instants_s=_middle_instants_s,
)


def sample_named(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Take the frames nearest to `times_ms`; return frame indices, shape (M,), M >= 1, in the order of the times."""
    if not sampling.times_ms:
        raise SamplingRefusedError(
            "The sampler relevant chooses frames by what a job asks, and no job is known here; it is for classify, "
            "backfill and evaluate: use another sampler."
        )
    times_s = presentation_times_s(video)
    if times_s is None:
        raise SamplingRefusedError("The sampler relevant needs times, which the video lacks; use the sampler uniform.")
    return nearest_frames(times_s, _named_s(sampling, times_s))


def _named_s(sampling: SamplerOptions, _times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.array(sampling.times_ms, np.float64) / 1e3


RELEVANT = SamplerSpec(
    name="relevant",
    summary="the frames that fit a job's question best, by an image-text model, spread over time",
    choose=sample_named,
    options=frozenset({"times_ms"}),
    instants_s=_named_s,
    needs_question=True,
)
