"""Model folders without weights: an architecture of any size, its vocabulary and chat template the tiny model's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.weightless import tiny_config, write_weightless

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Measures of a Qwen2.5-VL; heads have 64 dimensions.

    Attributes:
        max_pixels: Most pixels of one frame.
        max_tokens: Of a prompt.
    """

    name: str
    hidden: int
    intermediate: int
    layers: int
    kv_heads: int
    vision_hidden: int
    vision_intermediate: int
    vision_layers: int
    max_pixels: int
    max_tokens: int = 8192
    dtype: str = "float32"

    @property
    def parameters(self) -> int:
        """Weights of the matrices, which is all but a few of them."""
        layer = self.hidden * (2 * self.hidden + 2 * self.kv_heads * _HEAD + 3 * self.intermediate)
        vision = self.vision_hidden * (4 * self.vision_hidden + 3 * self.vision_intermediate)
        merged = 4 * self.vision_hidden
        merger = merged * (merged + self.hidden)
        return self.layers * layer + self.vision_layers * vision + merger


_HEAD = 64
_MIN_PIXELS = 28 * 28

MEDIUM = Architecture(
    name="qwen2.5-vl-100m",
    hidden=768,
    intermediate=2304,
    layers=9,
    kv_heads=2,
    vision_hidden=512,
    vision_intermediate=1536,
    vision_layers=8,
    max_pixels=84 * 84,
)


def write_architecture(architecture: Architecture, folder: Path) -> Path:
    """Write a model folder to be loaded by `load_format="dummy"`; gives it back.

    Args:
        architecture: What to write.
        folder: Where folders of architectures are; the model's own is made in it.
    """
    return write_weightless(
        folder / architecture.name,
        _config(architecture),
        min_pixels=_MIN_PIXELS,
        max_pixels=architecture.max_pixels,
    )


def _config(wanted: Architecture) -> dict[str, Any]:
    config = tiny_config()
    config["dtype"] = wanted.dtype
    config["text_config"] |= {
        "hidden_size": wanted.hidden,
        "intermediate_size": wanted.intermediate,
        "num_hidden_layers": wanted.layers,
        "num_attention_heads": wanted.hidden // _HEAD,
        "num_key_value_heads": wanted.kv_heads,
        "layer_types": ["full_attention"] * wanted.layers,
        "max_position_embeddings": wanted.max_tokens,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]},
    }
    config["vision_config"] |= {
        "hidden_size": wanted.vision_hidden,
        "intermediate_size": wanted.vision_intermediate,
        "depth": wanted.vision_layers,
        "num_heads": wanted.vision_hidden // _HEAD,
        "out_hidden_size": wanted.hidden,
        "fullatt_block_indexes": [wanted.vision_layers - 1],
    }
    return config
