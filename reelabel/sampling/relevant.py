"""Frames that an application chose by what is asked about them, named by their times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import SamplingRefusedError
from reelabel.sampling.spec import SamplerSpec
from reelabel.sampling.timeline import nearest_frames, presentation_times_s

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties


def sample_named(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Take the frames nearest to `times_ms`; return frame indices; shape (M,), M >= 1, in the order of the times.

    Raises:
        SamplingRefusedError: Nobody has chosen, or the video has no times.
    """
    if not sampling.times_ms:
        raise SamplingRefusedError(
            "The sampler relevant chooses frames by what a job asks, and no job is known here; it is for classify, "
            "backfill and evaluate: use another sampler."
        )
    times_s = presentation_times_s(facts)
    if times_s is None:
        raise SamplingRefusedError("The sampler relevant needs times, which the video lacks; use the sampler uniform.")
    return nearest_frames(times_s, _named_s(sampling, times_s))


def _named_s(sampling: Sampling, _times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.array(sampling.times_ms, np.float64) / 1e3


RELEVANT = SamplerSpec(
    name="relevant",
    summary="the frames that fit a job's question best, by an image-text model, spread over time",
    choose=sample_named,
    options=frozenset({"times_ms"}),
    instants_s=_named_s,
    asks_the_question=True,
)
