"""The native sampler of LLaVA-OneVision 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel.sampling.spec import SamplerSpec

if TYPE_CHECKING:
    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties

_FPS = 1.0
_MIN_FRAMES = 4
_PAIR = 2


def sample_llava_onevision2(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Sample at `fps`, an even number of frames from 4 to `num_frames`, evenly from the first to the last.

    Equivalent to vLLM's loader `llava_onevision2`, which follows `smart_nframes` of `qwen_vl_utils`.

    Returns:
        Frame indices; shape (M,), M >= 2, ascending; a video of one frame shows it twice.
    """
    total = facts.total_frames
    wanted = total / facts.fps * (sampling.fps or _FPS) if facts.fps else total
    count = min(max(wanted, _MIN_FRAMES), sampling.num_frames // _PAIR * _PAIR, total)
    count = max(int(count // _PAIR) * _PAIR, _PAIR)
    return np.linspace(0, total - 1, count).round().astype(np.int64)


LLAVA_ONEVISION2 = SamplerSpec(
    name="llava_onevision2",
    summary="as LLaVA-OneVision 2 was trained",
    choose=sample_llava_onevision2,
    options=frozenset({"fps"}),
    processors=("LlavaOnevision2VideoProcessor",),
    source="vLLM's loader llava_onevision2",
)
