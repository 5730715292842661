"""Translates `media_io_kwargs` of vLLM's own loaders to our sampling options."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from reelabel.errors import ConfigurationError
from reelabel.sampling.registry import DEFAULT_DENSE_SAMPLER, find_sampler
from reelabel.sampling.spec import EVERY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reelabel.sampling.spec import SamplerSpec

_INVALID = "Invalid media_io_kwargs of the video loader pyav_keyframes"
# Options of vLLM whose value is fixed in this loader.
_ALWAYS: dict[str, object] = {
    "backend": "pyav",
    "seek_mode": "exact",
    "device": "cpu",
    "overflow_strategy": "uniform",
    "temporal_patch_size": 2,
}
# Defaults of vLLM's loaders, which clients send with any sampler.
_NEUTRAL: dict[str, object] = {"fps": EVERY, "max_duration_s": 300, "frame_recovery": False}
# Loaders that lower a larger max_frames to their maximum.
_CLAMPING = frozenset({"qwen2_vl", "qwen3_vl", "glmga"})
# Loaders for which -1 stands for their default.
_DEFAULT_RATE = frozenset({"glm46v", "glm5_next", "embedding_gemma2", "llava_onevision2"})
_LLAVA_MAX_FRAMES = 32


def invalid_option(where: str, message: str) -> ConfigurationError:
    return ConfigurationError(f"{_INVALID}: {where}: {message}.")


def translate_media_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the equivalent options of `Sampling`; raise ConfigurationError if there are none."""
    given = dict(options)
    specs = _samplers_in_use(given)
    sampler = specs[0].name if specs else None
    for name, always in _ALWAYS.items():
        if given.get(name, always) == always:
            given.pop(name, None)
    for name in given.keys() & _ALWAYS.keys():
        raise invalid_option(name, f"it is always {_ALWAYS[name]} here; leave it out")
    _rename(given, "max_duration", "max_duration_s")
    if sampler == "molmo2":
        _translate_molmo2(given)
    if given.get("fps") == EVERY and sampler in _DEFAULT_RATE:
        del given["fps"]
    if given.get("num_frames") == EVERY and sampler == "llava_onevision2":
        given["num_frames"] = _LLAVA_MAX_FRAMES
    if sampler in _CLAMPING and isinstance(most := given.get("max_frames"), int):
        given["max_frames"] = min(most, int(dict(specs[0].at_most)["max_frames"]))
    return _without_neutral(given, specs)


def _without_neutral(given: Mapping[str, Any], specs: Sequence[SamplerSpec]) -> dict[str, Any]:
    read = {option for spec in specs for option in (*spec.options, *(["frame_recovery"] if spec.choose else []))}
    return {name: value for name, value in given.items() if name in read or value != _NEUTRAL.get(name, ...)}


def _samplers_in_use(given: Mapping[str, Any]) -> list[SamplerSpec]:
    names = [given.get("sampler", "keyframes")]
    if names == ["auto"]:
        names.append(given.get("dense_sampler", DEFAULT_DENSE_SAMPLER))
    with suppress(ValueError, TypeError):
        return [find_sampler(name) for name in names]
    return []


def _rename(given: dict[str, Any], theirs: str, ours: str) -> None:
    if theirs not in given:
        return
    if ours in given:
        raise invalid_option(theirs, f"it means the same as {ours}; leave one of them out")
    given[ours] = given.pop(theirs)


def _translate_molmo2(given: dict[str, Any]) -> None:
    if "frame_sample_mode" in given and given["frame_sample_mode"] is None:  # as in vLLM, whose default it is
        given["frame_sample_mode"] = "every_frame"
    mode = given.get("frame_sample_mode", "uniform_last_frame")
    rates = {name: given.pop(name) for name in ("max_fps", "sampling_fps") if name in given}
    if mode == "every_frame":
        given.pop("num_frames", None)
        return
    read = "sampling_fps" if mode == "fps" else "max_fps"
    if read in rates:
        given[read] = EVERY if read == "max_fps" and rates[read] is None else rates[read]
        _rename(given, read, "fps")
