"""The sampling that openPangu's model was trained with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tasks.domain import Sampling
    from tasks.video.samplers.facts import Indices, SourceFacts

_FPS = 2.0


def sample_openpangu(sampling: Sampling, facts: SourceFacts) -> Indices:
    """Take `fps` frames a second from the first; where they are more than `num_frames`, spread those.

    As vLLM's loader `openpangu` does.

    Returns:
        Shape (M,), M >= 1, ascending; frames repeat where `fps` is above the video's own.
    """
    fps = sampling.fps or _FPS
    last = facts.total_frames - 1
    last_s = last / facts.fps if facts.fps else 0.0
    count = sampling.num_frames
    if count >= int(last_s * fps) + 1:
        count = int(last_s * fps) + 1
        last_s = min(last_s, (count - 1) / fps)
    positions = np.rint(np.linspace(0, last_s, count) * facts.fps)
    indices: Indices = np.minimum(positions, last).astype(np.int64)
    return indices
