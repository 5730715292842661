"""The sampler that a model was trained with, as far as its name tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reelabel.sampling.options import SamplerName

# Those that a page can replay.
NATIVE_SAMPLERS: tuple[SamplerName, ...] = (
    "qwen2_vl",
    "qwen3_vl",
    "glm46v",
    "dynamic",
    "molmo2",
    "openpangu",
    "fps",
)
# The tiny model that ships is a Qwen2.5-VL.
_BY_NAME: dict[str, SamplerName] = {
    "reelabel-tiny": "qwen2_vl",
    "qwen3": "qwen3_vl",
    "qwen": "qwen2_vl",
    "glm-4.6v": "glm46v",
    "glm-4": "dynamic",
    "molmo": "molmo2",
    "pangu": "openpangu",
}


def native_sampler(model_name: str) -> SamplerName:
    """Name a model's own sampler by its hub name or folder; two frames a second for those that do not tell."""
    known = model_name.lower()
    return next((sampler for part, sampler in _BY_NAME.items() if part in known), "fps")
