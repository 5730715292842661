"""A sampler of another package, as docs/extending.md writes it."""

import numpy as np

from reelabel.sampling.spec import SamplerSpec


def sample_every_nth(sampling, video):
    step = max(1, video.total_frames // sampling.num_frames)
    return np.arange(0, video.total_frames, step)[: sampling.num_frames]


EVERY_NTH = SamplerSpec(
    name="every_nth",
    summary="every n-th frame, from the first on",
    choose=sample_every_nth,
    processors=("EveryNthVideoProcessor",),
)
