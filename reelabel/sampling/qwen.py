"""The native samplers of Qwen's models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import SamplingRefusedError
from reelabel.sampling.spec import SamplerSpec

if TYPE_CHECKING:
    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties

_FPS = 2.0
_MAX_FPS = 30.0
_MIN_FRAMES = 4
_MAX_FRAMES = 768
_TEMPORAL_PATCH = 2  # frames per temporal patch of the model
_ASSUMED_FPS = 24.0  # Qwen3-VL's default for a video without a frame rate

_LANES = 8  # float32 lanes in a vector of torch's CPU kernel
_UNROLLED = 2 * _LANES


def sample_qwen2_vl(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Sample at `fps`, an even number of frames from `min_frames` to `max_frames`.

    Equivalent to vLLM's loader `qwen2_vl`, which follows Qwen2-VL's video processor in transformers; Qwen2.5-VL uses
    the same one.

    Returns:
        Frame indices; shape (M,), M >= 2, ascending; the last may be repeated.

    Raises:
        SamplingRefusedError: The frame rate is unknown, or the video has only one frame.
    """
    facts.require_rate("qwen2_vl", instead="fps")
    wanted = facts.total_frames / facts.fps * min(sampling.fps or _FPS, _MAX_FPS)
    most = _even(min(sampling.max_frames or _MAX_FRAMES, facts.total_frames))
    count = _even(min(max(wanted, sampling.min_frames or _MIN_FRAMES), most))
    if count == 0:
        raise SamplingRefusedError(
            "The sampler qwen2_vl needs at least 2 frames, but the video has 1; use the sampler num_frames."
        )
    return np.minimum(_arange_as_torch(facts.total_frames, count), facts.total_frames - 1)


def sample_qwen3_vl(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Sample at `fps`, from `min_frames` to `max_frames` frames, evenly from the first to the last.

    Equivalent to vLLM's loader `qwen3_vl`, which follows Qwen3-VL's video processor in transformers.

    Returns:
        Frame indices; shape (M,), M >= 1, ascending, without repeats.
    """
    wanted = int(facts.total_frames / (facts.fps or _ASSUMED_FPS) * min(sampling.fps or _FPS, _MAX_FPS))
    least, most = sampling.min_frames or _MIN_FRAMES, sampling.max_frames or _MAX_FRAMES
    count = min(max(wanted, least), most, facts.total_frames)
    return np.linspace(0, facts.total_frames - 1, count).round().astype(np.int64)


def _even(count: float) -> int:
    return math.floor(count / _TEMPORAL_PATCH) * _TEMPORAL_PATCH


def _arange_as_torch(total: int, count: int) -> Indices:
    """Compute `torch.arange(0, total, total / count).int()` as torch does on a CPU, with identical rounding.

    torch computes in float64 and stores float32, in vectors whose first element is rounded to float32 before the
    steps of the others are added; elements that do not fill two vectors are computed one by one. Without this, one
    video in six would get a different frame somewhere.

    Returns:
        Shape (M,), where M is `count`, or one more, the last then being `total`.
    """
    step = total / count
    positions = np.arange(math.ceil(total / step))
    lane = positions % _LANES
    starts = (step * (positions - lane)).astype(np.float32).astype(np.float64)
    is_vector = positions < len(positions) // _UNROLLED * _UNROLLED
    exact = np.where(is_vector, starts + lane * step, step * positions)
    return exact.astype(np.float32).astype(np.int64)


QWEN2_VL = SamplerSpec(
    name="qwen2_vl",
    summary="as Qwen2-VL and Qwen2.5-VL were trained",
    choose=sample_qwen2_vl,
    options=frozenset({"fps", "min_frames", "max_frames"}),
    takes_num_frames=False,
    default_fps=_FPS,
    at_most=(("max_frames", _MAX_FRAMES),),
    processors=("Qwen2VLVideoProcessor",),
    model_types=(
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen2_5_omni",
        "qwen3_omni_moe",
        "exaone4_5",
        "hyperclovax_vision_v2",
    ),
    yields_to_num_frames=True,
    source="vLLM's loader qwen2_vl",
)
QWEN3_VL = SamplerSpec(
    name="qwen3_vl",
    summary="as Qwen3-VL was trained",
    choose=sample_qwen3_vl,
    options=frozenset({"fps", "min_frames", "max_frames"}),
    takes_num_frames=False,
    default_fps=_FPS,
    at_most=(("max_frames", _MAX_FRAMES),),
    processors=("Qwen3VLVideoProcessor", "Cosmos3EdgeVideoProcessor"),
    model_types=(
        "qwen3_vl",
        "qwen3_vl_moe",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen4_exp",
        "cosmos3_edge",
        "cosmos3_omni",
    ),
    source="vLLM's loader qwen3_vl",
)
