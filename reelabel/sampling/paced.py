"""The native samplers that take a frame at each step of a clock: EmbeddingGemma 2, MiniMax-M3 and Clef-Omni."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import SamplingRefusedError
from reelabel.sampling.spec import SamplerSpec

if TYPE_CHECKING:
    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties

_GEMMA_FPS = 1.0
_GEMMA_MAX_FRAMES = 32
_MINIMAX_FPS = 1.0
_MINIMAX_EARLY_S = 1e-4
_CLEF_FPS = 2.0
_CLEF_MAX_FRAMES = 768
_CLEF_EARLY_FRAMES = 1e-6


def sample_embedding_gemma2(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Take the frame shown at each step of `fps`; if there are more than `max_frames`, that many of them, evenly.

    Equivalent to vLLM's loader `embedding_gemma2` with its overflow strategy `uniform`. Without a frame rate or a
    duration, it takes every frame, or `max_frames` of them, evenly.

    Returns:
        Frame indices; shape (M,), M >= 1, ascending; frames repeat if `fps` exceeds the video's frame rate.
    """
    fps, most = sampling.fps or _GEMMA_FPS, sampling.max_frames or _GEMMA_MAX_FRAMES
    total = facts.total_frames
    if not facts.fps or not facts.duration_s:
        return np.arange(total) if total <= most else np.linspace(0, total - 1, most, dtype=np.int64)
    count = max(1, int(facts.duration_s * fps))
    steps = np.arange(count) if count <= most else np.linspace(0, count - 1, most, dtype=np.int64)
    # Clipped before the conversion: a bogus duration may exceed 64 bits.
    indices: Indices = np.minimum(steps * (facts.fps / fps), total - 1).astype(np.int64)
    return indices


def sample_minimax_m3_vl(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Take the first frame, then always the next one that is 1 / `fps` seconds later.

    Equivalent to vLLM's loader `minimax_m3_vl`.

    Returns:
        Frame indices; shape (M,), M >= 1, ascending, without repeats; only the first without a frame rate.
    """
    step_s = 1.0 / (sampling.fps or _MINIMAX_FPS) - _MINIMAX_EARLY_S
    indices = [0]
    while facts.fps:
        due_s = indices[-1] / facts.fps + step_s
        following = max(math.ceil(due_s * facts.fps), indices[-1] + 1)
        if following >= facts.total_frames:
            break
        indices.append(following)
    return np.array(indices, np.int64)


def sample_clef_omni(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Take the first frame at or after each step of `fps`, an even number.

    Equivalent to vLLM's loader `clef_omni`.

    Returns:
        Frame indices; shape (M,), M >= 2, ascending, the last repeated if M would be odd; frames repeat if `fps`
        exceeds the video's frame rate.

    Raises:
        SamplingRefusedError: The frame rate is unknown, or there are more than 768 steps.
    """
    facts.require_rate("clef_omni", instead="num_frames")
    fps = sampling.fps or _CLEF_FPS
    steps = np.arange(_CLEF_MAX_FRAMES + 1)
    positions = np.ceil(steps * (facts.fps / fps) - _CLEF_EARLY_FRAMES)
    indices = positions[positions < facts.total_frames].astype(np.int64)
    if len(indices) > _CLEF_MAX_FRAMES:
        raise SamplingRefusedError(
            f"The sampler clef_omni takes at most {_CLEF_MAX_FRAMES} frames, and at {fps:g} fps the video has more; "
            "lower fps, or ask about a segment of the video (start_s, end_s)."
        )
    return np.append(indices, indices[-1]) if len(indices) % 2 else indices


EMBEDDING_GEMMA2 = SamplerSpec(
    name="embedding_gemma2",
    summary="as EmbeddingGemma 2 was trained",
    choose=sample_embedding_gemma2,
    options=frozenset({"fps", "max_frames"}),
    takes_num_frames=False,
    default_fps=_GEMMA_FPS,
    at_most=(("fps", 60), ("max_frames", 128)),
    processors=("EmbeddingGemma2VideoProcessor",),
    model_types=("embedding_gemma2",),
    source="vLLM's loader embedding_gemma2",
)
MINIMAX_M3_VL = SamplerSpec(
    name="minimax_m3_vl",
    summary="as MiniMax-M3 was trained",
    choose=sample_minimax_m3_vl,
    options=frozenset({"fps"}),
    takes_num_frames=False,
    processors=("MiniMaxM3VLVideoProcessor",),
    model_types=("minimax_m3_vl",),
    source="vLLM's loader minimax_m3_vl",
)
CLEF_OMNI = SamplerSpec(
    name="clef_omni",
    summary="as Clef-Omni was trained",
    choose=sample_clef_omni,
    options=frozenset({"fps"}),
    takes_num_frames=False,
    source="vLLM's loader clef_omni",
)
