"""Qwen2.5-VL as published, without its weights: folders to be loaded by `load_format="dummy"`.

Measures are those of Qwen's own config.json and preprocessor_config.json (Qwen2.5-VL-7B-Instruct and
-3B-Instruct). The tokenizer is the tiny model's: what a prompt costs goes by its pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.weightless import tiny_config, write_weightless

if TYPE_CHECKING:
    from pathlib import Path

_MIN_PIXELS, _MAX_PIXELS = 128 * 28 * 28, 768 * 28 * 28
_VISION = {
    "depth": 32,
    "hidden_act": "silu",
    "hidden_size": 1280,
    "in_channels": 3,
    "num_heads": 16,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "tokens_per_second": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen:
    """What differs between the sizes."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    has_tied_embeddings: bool
    vision_intermediate: int


QWEN_7B = Qwen(
    name="qwen2.5-vl-7b",
    hidden=3584,
    intermediate=18944,
    layers=28,
    heads=28,
    kv_heads=4,
    vocabulary=152_064,
    has_tied_embeddings=False,
    vision_intermediate=3420,
)
QWEN_3B = Qwen(
    name="qwen2.5-vl-3b",
    hidden=2048,
    intermediate=11008,
    layers=36,
    heads=16,
    kv_heads=2,
    vocabulary=151_936,
    has_tied_embeddings=True,
    vision_intermediate=3420,
)


def write_qwen(qwen: Qwen, folder: Path) -> Path:
    """Write a model folder below another; gives it back."""
    return write_weightless(folder / qwen.name, _config(qwen), min_pixels=_MIN_PIXELS, max_pixels=_MAX_PIXELS)


def _config(qwen: Qwen) -> dict[str, Any]:
    config = tiny_config()
    text = config["text_config"] | {
        "hidden_size": qwen.hidden,
        "intermediate_size": qwen.intermediate,
        "num_hidden_layers": qwen.layers,
        "layer_types": ["full_attention"] * qwen.layers,
        "max_window_layers": qwen.layers,
        "num_attention_heads": qwen.heads,
        "num_key_value_heads": qwen.kv_heads,
        "vocab_size": qwen.vocabulary,
        "tie_word_embeddings": qwen.has_tied_embeddings,
        "max_position_embeddings": 128_000,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    }
    vision = config["vision_config"] | _VISION
    vision |= {"intermediate_size": qwen.vision_intermediate, "out_hidden_size": qwen.hidden}
    return config | {
        "dtype": "bfloat16",
        "tie_word_embeddings": qwen.has_tied_embeddings,
        "text_config": text,
        "vision_config": vision,
    }
