"""The native samplers of Molmo 2, openPangu, LLaVA-OneVision 2, EmbeddingGemma 2, MiniMax-M3 and Clef-Omni.

The last three take a frame at each step of a clock.
"""

from __future__ import annotations

import math

import numpy as np

from reelabel.errors import SamplingRefusedError
from reelabel.sampling.spec import EVERY, Indices, SamplerOptions, SamplerSpec, VideoProperties

_MOLMO_FPS = 2.0
_MOLMO_MAX_FPS = 8
_MOLMO_MIN_SPACED = 3  # shorter videos are sampled whole


def sample_molmo2(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Sample up to `num_frames` frames according to `frame_sample_mode`, or every frame.

    Equivalent to vLLM's loader `molmo2`, which follows Molmo 2's video processor. `fps` is its `max_fps` in the mode
    `uniform_last_frame`, where `EVERY` stands for none, and its `sampling_fps` in the mode `fps`: each mode reads one.
    Returns frame indices, shape (M,), M >= 1, ascending. Refuses a frame rate that is unknown or incompatible with
    `fps`.
    """
    if sampling.frame_sample_mode == "every_frame":
        return np.arange(video.total_frames)
    if sampling.frame_sample_mode == "fps":
        return _sample_by_divisor(sampling, video)
    return _sample_to_last_frame(sampling, video)


def _sample_to_last_frame(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Sample every 1 / `fps` seconds and add the last frame; if those are too many, spread `num_frames` evenly."""
    fps, last = sampling.fps or _MOLMO_FPS, video.total_frames - 1
    if video.total_frames < _MOLMO_MIN_SPACED and fps != EVERY:
        return np.arange(video.total_frames)
    if fps == EVERY or video.duration_s > (sampling.num_frames - 1) / fps:
        return np.linspace(0, last, min(sampling.num_frames, video.total_frames), dtype=np.int64)
    video.check_rate("molmo2", instead="fps")
    step = video.fps / fps
    # Checked before allocation: a bogus duration could request any number of frames.
    if math.ceil(last / step) <= sampling.num_frames:
        spaced = np.arange(0.0, last, step)
        if np.round(spaced[-1]) != last:
            spaced = np.append(spaced, last)
        if len(spaced) <= sampling.num_frames:
            return np.round(spaced).astype(np.int64)
    raise SamplingRefusedError(
        f"The sampler molmo2 cannot sample this video: {video.total_frames:,} frames at {video.fps:g} fps contradict "
        f"its duration of {video.duration_s:g} s; use the sampler uniform."
    )


def _sample_by_divisor(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Take every k-th frame, at the highest rate up to 8 fps at which `num_frames` span the video.

    Candidate rates are the multiples of `fps` that divide the video's own frame rate, all truncated to integers. At
    the lowest rate, frames beyond `num_frames` are dropped.
    """
    own, lowest = int(video.fps), int(sampling.fps or _MOLMO_FPS)  # `EVERY` is refused below: it is less than 1
    if own < 1 or lowest < 1 or own % lowest:
        raise SamplingRefusedError(
            f"The sampler molmo2 needs an fps that divides the video's frame rate ({video.fps:g}), and "
            f"{sampling.fps or _MOLMO_FPS:g} does not; set another fps, or frame_sample_mode to uniform_last_frame."
        )
    step, taken = 0, 0
    for rate in range(lowest, min(own, _MOLMO_MAX_FPS) + 1, lowest):
        if own % rate == 0:
            candidate = max(int(video.fps / rate), 1)
            count = video.total_frames // candidate
            if taken == 0 or taken < count <= sampling.num_frames:
                step, taken = candidate, count
    if step == 0:
        return np.linspace(0, video.total_frames, sampling.num_frames, endpoint=False, dtype=np.int64)
    return np.arange(0, video.total_frames, step)[: sampling.num_frames]


MOLMO2 = SamplerSpec(
    name="molmo2",
    summary="as Molmo 2 was trained",
    choose=sample_molmo2,
    options=frozenset({"fps", "frame_sample_mode"}),
    unlimited=frozenset({"fps"}),
    processors=("Molmo2VideoProcessor",),
    source="vLLM's loader molmo2",
)


_PANGU_FPS = 2.0


def sample_openpangu(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Sample at `fps` from the first frame; if that exceeds `num_frames`, or has no limit, spread `num_frames` evenly.

    Equivalent to vLLM's loader `openpangu`. Returns frame indices, shape (M,), M >= 1, ascending; frames repeat if
    `fps` exceeds the video's frame rate.
    """
    fps = sampling.fps or _PANGU_FPS
    last = video.total_frames - 1
    last_s = last / video.fps if video.fps else 0.0
    count = sampling.num_frames
    if fps != EVERY and count >= int(last_s * fps) + 1:
        count = int(last_s * fps) + 1
        last_s = min(last_s, (count - 1) / fps)
    positions = np.rint(np.linspace(0, last_s, count) * video.fps)
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


_LLAVA_FPS = 1.0
_LLAVA_MIN_FRAMES = 4
_LLAVA_PAIR = 2


def sample_llava_onevision2(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Sample at `fps`, an even number of frames from 4 to `num_frames`, evenly from the first to the last.

    Equivalent to vLLM's loader `llava_onevision2`, which follows `smart_nframes` of `qwen_vl_utils`. Returns frame
    indices, shape (M,), M >= 2, ascending; a video of one frame shows it twice.
    """
    total = video.total_frames
    wanted = total / video.fps * (sampling.fps or _LLAVA_FPS) if video.fps else total
    count = min(max(wanted, _LLAVA_MIN_FRAMES), sampling.num_frames // _LLAVA_PAIR * _LLAVA_PAIR, total)
    count = max(int(count // _LLAVA_PAIR) * _LLAVA_PAIR, _LLAVA_PAIR)
    return np.linspace(0, total - 1, count).round().astype(np.int64)


LLAVA_ONEVISION2 = SamplerSpec(
    name="llava_onevision2",
    summary="as LLaVA-OneVision 2 was trained",
    choose=sample_llava_onevision2,
    options=frozenset({"fps"}),
    processors=("LlavaOnevision2VideoProcessor",),
    source="vLLM's loader llava_onevision2",
)


_GEMMA_FPS = 1.0
_GEMMA_MAX_FRAMES = 32
_MINIMAX_FPS = 1.0
_MINIMAX_EARLY_S = 1e-4
_CLEF_FPS = 2.0
_CLEF_MAX_FRAMES = 768
_CLEF_EARLY_FRAMES = 1e-6


def sample_embedding_gemma2(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Take the frame shown at each step of `fps`; if there are more than `max_frames`, that many of them, evenly.

    Equivalent to vLLM's loader `embedding_gemma2` with its overflow strategy `uniform`. Without a frame rate or a
    duration, it takes every frame, or `max_frames` of them, evenly. Returns frame indices, shape (M,), M >= 1,
    ascending; frames repeat if `fps` exceeds the video's frame rate.
    """
    fps, most = sampling.fps or _GEMMA_FPS, sampling.max_frames or _GEMMA_MAX_FRAMES
    total = video.total_frames
    if not video.fps or not video.duration_s:
        return np.arange(total) if total <= most else np.linspace(0, total - 1, most, dtype=np.int64)
    count = max(1, int(video.duration_s * fps))
    steps = np.arange(count) if count <= most else np.linspace(0, count - 1, most, dtype=np.int64)
    # Clipped before the conversion: a bogus duration may exceed 64 bits.
    indices: Indices = np.minimum(steps * (video.fps / fps), total - 1).astype(np.int64)
    return indices


def sample_minimax_m3_vl(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Take the first frame, then always the next one that is 1 / `fps` seconds later.

    Equivalent to vLLM's loader `minimax_m3_vl`. Returns frame indices, shape (M,), M >= 1, ascending, without repeats;
    only the first without a frame rate.
    """
    step_s = 1.0 / (sampling.fps or _MINIMAX_FPS) - _MINIMAX_EARLY_S
    indices = [0]
    while video.fps:
        due_s = indices[-1] / video.fps + step_s
        following = max(math.ceil(due_s * video.fps), indices[-1] + 1)
        if following >= video.total_frames:
            break
        indices.append(following)
    return np.array(indices, np.int64)


def sample_clef_omni(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Take the first frame at or after each step of `fps`, an even number.

    Equivalent to vLLM's loader `clef_omni`. Returns frame indices, shape (M,), M >= 2, ascending, the last repeated if
    M would be odd; frames repeat if `fps` exceeds the video's frame rate. Refuses an unknown frame rate, and more than
    768 steps.
    """
    video.check_rate("clef_omni", instead="num_frames")
    fps = sampling.fps or _CLEF_FPS
    steps = np.arange(_CLEF_MAX_FRAMES + 1)
    positions = np.ceil(steps * (video.fps / fps) - _CLEF_EARLY_FRAMES)
    indices = positions[positions < video.total_frames].astype(np.int64)
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
    uses_num_frames=False,
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
    uses_num_frames=False,
    processors=("MiniMaxM3VLVideoProcessor",),
    model_types=("minimax_m3_vl",),
    source="vLLM's loader minimax_m3_vl",
)
CLEF_OMNI = SamplerSpec(
    name="clef_omni",
    summary="as Clef-Omni was trained",
    choose=sample_clef_omni,
    options=frozenset({"fps"}),
    uses_num_frames=False,
    source="vLLM's loader clef_omni",
)
