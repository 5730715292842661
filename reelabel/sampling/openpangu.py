"""The native sampler of openPangu."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel.sampling.spec import EVERY, SamplerSpec

if TYPE_CHECKING:
    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties

_FPS = 2.0


def sample_openpangu(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Sample at `fps` from the first frame; if that exceeds `num_frames`, or has no limit, spread `num_frames` evenly.

    Equivalent to vLLM's loader `openpangu`.

    Returns:
        Frame indices; shape (M,), M >= 1, ascending; frames repeat if `fps` exceeds the video's frame rate.
    """
    fps = sampling.fps or _FPS
    last = facts.total_frames - 1
    last_s = last / facts.fps if facts.fps else 0.0
    count = sampling.num_frames
    if fps != EVERY and count >= int(last_s * fps) + 1:
        count = int(last_s * fps) + 1
        last_s = min(last_s, (count - 1) / fps)
    positions = np.rint(np.linspace(0, last_s, count) * facts.fps)
    indices: Indices = np.minimum(positions, last).astype(np.int64)
    return indices


OPENPANGU = SamplerSpec(
    name="openpangu",
    summary="as openPangu was trained",
    choose=sample_openpangu,
    options=frozenset({"fps"}),
    unlimited=frozenset({"fps"}),
    model_types=("openpangu_vl",),
    source="vLLM's loader openpangu",
)
