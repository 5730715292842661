"""The registry of samplers: the built-in ones, and those of other packages.

Another package adds a sampler by an entry point of the group `reelabel.samplers` that names its `SamplerSpec`; a
script adds one by `register`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, get_args

import numpy as np

from reelabel.errors import ConfigurationError, SamplingRefusedError
from reelabel.sampling.native import CLEF_OMNI, EMBEDDING_GEMMA2, LLAVA_ONEVISION2, MINIMAX_M3_VL, MOLMO2, OPENPANGU
from reelabel.sampling.qwen_glm import GLM5_NEXT, GLM46V, GLMGA, QWEN2_VL, QWEN3_VL
from reelabel.sampling.spec import DenseOption, Indices, RoutingOption, SamplerOptions, SamplerSpec, VideoProperties
from reelabel.sampling.timeline import FPS, MIDDLES, NUM_FRAMES, RELEVANT, nearest_frames, presentation_times_s
from reelabel.sampling.uniform import DYNAMIC, UNIFORM
from reelabel.text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt


ENTRY_POINT_GROUP = "reelabel.samplers"
NATIVE = "native"  # stands for the sampler that a model was trained with
DEFAULT_DENSE_SAMPLER = UNIFORM.name
DENSE_OPTIONS: frozenset[str] = frozenset(get_args(DenseOption))
ROUTING_OPTIONS: frozenset[str] = frozenset(get_args(RoutingOption))
SAMPLER_OPTIONS = DENSE_OPTIONS | ROUTING_OPTIONS
_NAME = re.compile(r"[a-z][a-z0-9_]*")

KEYFRAMES = SamplerSpec(
    name="keyframes",
    summary="only keyframes, which are decoded without other frames",
    options=frozenset({"escalate_below"}),
    unlimited=frozenset({"num_frames"}),
)
AUTO = SamplerSpec(
    name="auto",
    summary="keyframes if they cover the video, otherwise the dense sampler",
    options=frozenset(get_args(RoutingOption)),
    unlimited=frozenset({"num_frames"}),
)
BUILT_IN: Mapping[str, SamplerSpec] = {
    spec.name: spec
    for spec in (
        KEYFRAMES,
        AUTO,
        RELEVANT,
        UNIFORM,
        DYNAMIC,
        QWEN2_VL,
        QWEN3_VL,
        GLM46V,
        GLM5_NEXT,
        GLMGA,
        MOLMO2,
        OPENPANGU,
        LLAVA_ONEVISION2,
        MINIMAX_M3_VL,
        EMBEDDING_GEMMA2,
        CLEF_OMNI,
        FPS,
        NUM_FRAMES,
        MIDDLES,
    )
}
_aliases = {alias: spec for spec in BUILT_IN.values() for alias in spec.aliases}
_registered = dict(BUILT_IN)


def register(spec: SamplerSpec) -> None:
    """Add a sampler; adding an equal record again has no effect.

    Raises ConfigurationError if another sampler has its name, or the record is invalid.
    """
    if _registered.get(spec.name, spec) != spec:
        raise ConfigurationError(f"Two samplers are named {spec.name}; rename or uninstall one of them.")
    if not _NAME.fullmatch(spec.name) or spec.name == NATIVE:
        raise ConfigurationError(
            f"{spec.name!r} cannot name a sampler; use lowercase letters, digits and underscores, and not {NATIVE}."
        )
    if spec.name not in BUILT_IN and spec.choose is None:
        raise ConfigurationError(f"The sampler {spec.name} has no function `choose`; add one to its record.")
    if spec.name not in BUILT_IN and (unknown := sorted(spec.options - DENSE_OPTIONS)):
        raise ConfigurationError(
            f"The sampler {spec.name} takes unknown options, {', '.join(unknown)}; a sampler can take "
            f"{', '.join(sorted(DENSE_OPTIONS))}."
        )
    _registered[spec.name] = spec


def samplers() -> Mapping[str, SamplerSpec]:
    """Return all samplers by name; ConfigurationError if one of another package cannot be loaded or registered."""
    _register_entry_points()
    return dict(_registered)


def dense_samplers() -> Mapping[str, SamplerSpec]:
    """Return the samplers that choose from all frames of a video, independently of the question."""
    return {name: spec for name, spec in samplers().items() if _is_dense(spec)}


def _is_dense(spec: SamplerSpec) -> bool:
    return spec.choose is not None and not spec.needs_question


def find_sampler(name: str) -> SamplerSpec:
    """Look up a sampler, by its name or an alias; raises as `samplers` does.

    Raises ValueError, which suggests the nearest name, if no sampler has this one.
    """
    # Entry points are read only for unknown names: reading them takes longer than decoding a small video.
    spec = _registered.get(name) or _aliases.get(name) or samplers().get(name)
    if spec:
        return spec
    if name == NATIVE:
        raise ValueError(f"{NATIVE} stands for a model's sampler, and no model is known here; name that sampler")
    shown = shorten(name)  # matching a long one would take seconds
    near = import_module("difflib").get_close_matches(shown, _registered, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(_registered)}"
    raise ValueError(f"Unknown sampler {shown}; {hint}")


def find_dense_sampler(name: str) -> SamplerSpec:
    """Look up a sampler that chooses from all frames of a video; raises as `find_sampler` does."""
    spec = find_sampler(name)
    if not _is_dense(spec):
        raise ValueError(f"{name} is not a dense sampler; choose one of {', '.join(dense_samplers())}")
    return spec


@cache
def _register_entry_points() -> None:
    # Imported late: this takes longer to import than PyAV.
    for point in import_module("importlib.metadata").entry_points(group=ENTRY_POINT_GROUP):
        origin = f"{point.name} of {point.dist.name}" if point.dist else point.name
        try:
            spec = point.load()
        except Exception as error:
            raise ConfigurationError(
                f"The sampler {origin} ({point.value}) cannot be loaded ({type(error).__name__}: {error}); "
                "fix or uninstall its package."
            ) from error
        if not isinstance(spec, SamplerSpec):
            raise ConfigurationError(f"The sampler {origin} ({point.value}) is not a SamplerSpec; name its record.")
        register(spec)


def choose_indices(sampling: SamplerOptions, video: VideoProperties) -> Indices:
    """Choose the frames to show to the model, by a sampler that chooses from all of them.

    Returns positions in the full linear decode, with repeats; shape (M,), M >= 1.

    Raises SamplingRefusedError if the sampler does not support the video, or selects no frames or frames that it lacks,
    and ValueError if it does not choose from all frames.
    """
    choose = find_sampler(sampling.sampler).choose or find_dense_sampler(sampling.sampler).choose
    assert choose is not None
    indices: Indices = np.asarray(choose(sampling, video))
    if indices.size == 0:
        raise SamplingRefusedError(
            f"The sampler {sampling.sampler} selects no frames of a video with {video.total_frames:,} frames at "
            f"{video.fps:g} fps and a duration of {video.duration_s:g} s; raise fps, or use the sampler num_frames."
        )
    is_valid = indices.ndim == 1 and np.issubdtype(indices.dtype, np.integer)
    if not is_valid or indices.min() < 0 or indices.max() >= video.total_frames:
        raise SamplingRefusedError(
            f"The sampler {sampling.sampler} returned no positions among the video's {video.total_frames:,} frames; "
            "it has a fault: use another sampler, and report the fault to its author."
        )
    return indices.astype(np.int64, copy=False)


def deviations_s(sampling: SamplerOptions, video: VideoProperties) -> npt.NDArray[np.float64] | None:
    """Return the deviation of each sampled frame from the instant that it was chosen for; negative if it is earlier.

    None for samplers that target no instants, and if times are unknown.
    """
    instants_s = find_sampler(sampling.sampler).instants_s
    times_s = presentation_times_s(video)
    if instants_s is None or times_s is None:
        return None
    targets_s = instants_s(sampling, times_s)
    deviations: npt.NDArray[np.float64] = times_s[nearest_frames(times_s, targets_s)] - targets_s
    return deviations


def native_sampler(*, processor: str | None = None, model_type: str | None = None) -> SamplerSpec | None:
    """Return the sampler that a model was trained with, as vLLM chooses its loader; None if no sampler is known.

    `processor` is the Hugging Face class of its video processor. The `model_type` of its configuration decides if that
    names none.
    """
    known = samplers().values()
    if processor:
        return next((spec for spec in known if processor in spec.processors), None)
    return next((spec for spec in known if model_type in spec.model_types), None)
