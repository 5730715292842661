"""The registry of dense samplers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.errors import SamplingRefusedError
from reelabel.sampling.dynamic import sample_dynamically
from reelabel.sampling.glm import sample_glm46v
from reelabel.sampling.molmo import sample_molmo2
from reelabel.sampling.openpangu import sample_openpangu
from reelabel.sampling.qwen import sample_qwen2_vl, sample_qwen3_vl
from reelabel.sampling.timeline import sample_on_timeline
from reelabel.sampling.uniform import sample_uniformly

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reelabel.sampling.options import Sampling
    from reelabel.sampling.properties import Indices, VideoProperties

SAMPLERS: Mapping[str, Callable[[Sampling, VideoProperties], Indices]] = {
    "uniform": sample_uniformly,
    "dynamic": sample_dynamically,
    "qwen2_vl": sample_qwen2_vl,
    "qwen3_vl": sample_qwen3_vl,
    "glm46v": sample_glm46v,
    "molmo2": sample_molmo2,
    "openpangu": sample_openpangu,
    "fps": sample_on_timeline,
    "num_frames": sample_on_timeline,
}


def choose_indices(sampling: Sampling, facts: VideoProperties) -> Indices:
    """Choose the frames to show to the model, by a dense sampler.

    Returns:
        Positions in the full linear decode, with repeats; shape (M,), M >= 1, int64.

    Raises:
        SamplingRefusedError: The sampler does not support the video, or selects no frames.
        ValueError: `sampling.sampler` is not a dense sampler.
    """
    if sampling.sampler not in SAMPLERS:
        raise ValueError(f"{sampling.sampler} is not a dense sampler; choose one of {', '.join(SAMPLERS)}")
    indices = SAMPLERS[sampling.sampler](sampling, facts)
    if indices.size == 0:
        raise SamplingRefusedError(
            f"The sampler {sampling.sampler} selects no frames of a video with {facts.total_frames:,} frames at "
            f"{facts.fps:g} fps and a duration of {facts.duration_s:g} s; raise fps, or use the sampler num_frames.",
        )
    return indices
