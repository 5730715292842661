"""The native samplers of Qwen's models, and of GLM-4.6V and its successors."""

from __future__ import annotations

import math

import numpy as np

from reelabel.errors import SamplingRefusedError
from reelabel.sampling.spec import Indices, SamplerOptions, SamplerSpec, VideoProperties

_FPS = 2.0
_MAX_FPS = 30.0
_MIN_FRAMES = 4
_MAX_FRAMES = 768
_TEMPORAL_PATCH = 2  # frames per temporal patch of the model
_ASSUMED_FPS = 24.0  # Qwen3-VL's default for a video without a frame rate

_LANES = 8  # float32 lanes in a vector of torch's CPU kernel
_UNROLLED = 2 * _LANES


def sample_qwen2_vl(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Sample at `fps`, an even number of frames from `min_frames` to `max_frames`.

    Equivalent to vLLM's loader `qwen2_vl`, which follows Qwen2-VL's video processor in transformers; Qwen2.5-VL uses
    the same one. Returns frame indices, shape (M,), M >= 2, ascending; the last may be repeated. Refuses a video of one
    frame, or without a frame rate.
    """
    video.check_rate("qwen2_vl", instead="fps")
    wanted = video.total_frames / video.fps * min(sampling.fps or _FPS, _MAX_FPS)
    most = _even(min(sampling.max_frames or _MAX_FRAMES, video.total_frames))
    count = _even(min(max(wanted, sampling.min_frames or _MIN_FRAMES), most))
    if count == 0:
        raise SamplingRefusedError(
            "The sampler qwen2_vl needs at least 2 frames, but the video has 1; use the sampler num_frames."
        )
    return np.minimum(_arange_as_torch(video.total_frames, count), video.total_frames - 1)


def sample_qwen3_vl(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Sample at `fps`, from `min_frames` to `max_frames` frames, evenly from the first to the last.

    Equivalent to vLLM's loader `qwen3_vl`, which follows Qwen3-VL's video processor in transformers. Returns frame
    indices; shape (M,), M >= 1, ascending, without repeats.
    """
    wanted = int(video.total_frames / (video.fps or _ASSUMED_FPS) * min(sampling.fps or _FPS, _MAX_FPS))
    least, most = sampling.min_frames or _MIN_FRAMES, sampling.max_frames or _MAX_FRAMES
    count = min(max(wanted, least), most, video.total_frames)
    return np.linspace(0, video.total_frames - 1, count).round().astype(np.int64)


def _even(count: float) -> int:
    return math.floor(count / _TEMPORAL_PATCH) * _TEMPORAL_PATCH


def _arange_as_torch(total: int, count: int) -> Indices:
    """Compute `torch.arange(0, total, total / count).int()` as torch does on a CPU, with identical rounding.

    torch computes in float64 and stores float32, in vectors whose first element is rounded to float32 before the steps
    of the others are added; elements that do not fill two vectors are computed one by one. Without this, one video in
    six would get a different frame somewhere. Returns shape (M,), where M is `count`, or one more, the last then being
    `total`.
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
    uses_num_frames=False,
    default_fps=_FPS,
    at_most=(("max_frames", _MAX_FRAMES),),
    processors=("Qwen2VLVideoProcessor",),
    model_types=("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "qwen3_omni_moe", "exaone4_5", "hyperclovax_vision_v2"),
    yields_to_num_frames=True,
    source="vLLM's loader qwen2_vl",
)
QWEN3_VL = SamplerSpec(
    name="qwen3_vl",
    summary="as Qwen3-VL was trained",
    choose=sample_qwen3_vl,
    options=frozenset({"fps", "min_frames", "max_frames"}),
    uses_num_frames=False,
    default_fps=_FPS,
    at_most=(("max_frames", _MAX_FRAMES),),
    processors=("Qwen3VLVideoProcessor", "Cosmos3EdgeVideoProcessor"),
    model_types=("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen4_exp", "cosmos3_edge", "cosmos3_omni"),
    source="vLLM's loader qwen3_vl",
)


_GLM_FPS_UP_TO_S = ((30.0, 3.0), (300.0, 1.0), (2400.0, 0.5))  # lower frame rates for longer videos
_GLM_MAX_S = _GLM_FPS_UP_TO_S[-1][0]
_GLM_MAX_FRAMES = 640
_GLM_NEXT_MAX_FRAMES = 2048


def sample_glm46v(sampling: SamplerOptions, video: VideoProperties) -> Indices:  # noqa: ARG001 - the model leaves no choice
    """Sample 6, 2 or 1 frames per second depending on the duration, an even number up to 640.

    Equivalent to vLLM's loader `glm46v`, which follows GLM-4.6V's video processor in transformers. Returns frame
    indices; shape (M,), ascending, the last repeated if M would be odd; empty if the video is shorter than one step.
    """
    length_s = min(video.length_s, _GLM_MAX_S)
    fps = next(fps for up_to_s, fps in _GLM_FPS_UP_TO_S if length_s <= up_to_s)
    count = min(int(length_s * fps * _TEMPORAL_PATCH), _GLM_MAX_FRAMES)
    if video.total_frames < count:
        return _paired(np.linspace(0, video.total_frames - 1, count, dtype=np.int64))
    walked = _walk(video, step_s=1 / (_TEMPORAL_PATCH * fps), end_s=int(video.length_s))
    return _paired(_respread(walked, count, video))


def sample_glm5_next(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Sample at `fps`, an even number of frames up to `max_frames`.

    Equivalent to vLLM's loader `glm5next`. It walks the video at twice that rate, for pairs of frames, and so nearly
    always finds too many, which it spreads evenly. Returns frame indices, shape (M,), ascending, the last repeated if M
    would be odd; empty if the video is shorter than one step. Refuses an unknown frame rate.
    """
    video.check_rate("glm5_next", instead="num_frames")
    fps, total = sampling.fps or _FPS, video.total_frames
    count = min(int(video.length_s * fps), sampling.max_frames or _GLM_NEXT_MAX_FRAMES)
    if total < count:
        return _paired(np.arange(count) * total // count)
    walked = _walk(video, step_s=1 / (_TEMPORAL_PATCH * fps), end_s=int(video.length_s))
    return _paired(_respread(walked, count, video))


def sample_glmga(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Sample at `fps`, at most 30, an even number of frames up to `max_frames`.

    Equivalent to vLLM's loader `glmga`. Returns frame indices, shape (M,), ascending, the last repeated if M would be
    odd; empty if the video is shorter than one step. Refuses an unknown frame rate.
    """
    video.check_rate("glmga", instead="num_frames")
    fps = min(sampling.fps or _FPS, _MAX_FPS)
    count = min(int(video.length_s * fps), sampling.max_frames or _GLM_MAX_FRAMES, video.total_frames)
    walked = _walk(video, step_s=1 / fps, end_s=video.length_s - 1 / fps)
    return _paired(_respread(walked, count, video))


def _respread(walked: Indices, count: int, video: VideoProperties) -> Indices:
    if len(walked) > count:
        return np.linspace(0, video.total_frames - 1, count, dtype=np.int64)
    return walked if len(walked) == count else np.linspace(walked[0], walked[-1], count, dtype=np.int64)


def _paired(indices: Indices) -> Indices:
    """Drop repeated frames, then repeat the last one if their number is odd."""
    unique = np.unique(indices)
    return np.append(unique, unique[-1:]) if len(unique) % _TEMPORAL_PATCH else unique


def _walk(video: VideoProperties, *, step_s: float, end_s: float) -> Indices:
    """Take the first frame, then for each step up to the end the first unused frame at or after it."""
    most = min(video.total_frames, int(end_s / step_s) + 2)
    # Accumulated rather than multiplied, to reproduce the original's rounding errors.
    due_s = np.cumsum(np.r_[0.0, np.full(most - 1, step_s)])
    due_s = due_s[: max(1, np.searchsorted(due_s, end_s))]
    times_s = np.arange(video.total_frames) * (1 / video.fps if video.fps else 0.0)
    step = np.arange(len(due_s))
    # Each frame is used once: a later step that falls on a used frame moves on to the next unused one.
    taken = np.maximum.accumulate(np.searchsorted(times_s, due_s) - step) + step
    indices: Indices = taken[taken < video.total_frames]
    return indices


GLM46V = SamplerSpec(
    name="glm46v",
    summary="as GLM-4.6V was trained",
    choose=sample_glm46v,
    uses_num_frames=False,
    processors=("Glm46VVideoProcessor",),
    model_types=("glm46v",),
    source="vLLM's loader glm46v",
)
GLM5_NEXT = SamplerSpec(
    name="glm5_next",
    summary="as GLM-5.3-Flash was trained",
    choose=sample_glm5_next,
    options=frozenset({"fps", "max_frames"}),
    uses_num_frames=False,
    default_fps=_FPS,
    processors=("Glm5NextVideoProcessor", "Glm5nextVideoProcessor"),
    model_types=("glm5_next",),
    aliases=("glm5next",),
    source="vLLM's loader glm5next",
)
GLMGA = SamplerSpec(
    name="glmga",
    summary="as GLM-GA was trained",
    choose=sample_glmga,
    options=frozenset({"fps", "max_frames"}),
    uses_num_frames=False,
    default_fps=_FPS,
    at_most=(("max_frames", _GLM_MAX_FRAMES),),
    processors=("GlmgaVideoProcessor",),
    model_types=("glmga",),
    source="vLLM's loader glmga",
)
