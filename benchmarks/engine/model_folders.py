"""Model folders without weights, for `load_format="dummy"`: a Qwen2.5-VL of any size, or as published.

Whatever a benchmark does not depend on, such as the tokenizer and the chat template, is the tiny model's: the cost of a
prompt depends on its pixels. The sizes of `QWEN_7B` and `QWEN_3B` are those of Qwen's own config.json and
preprocessor_config.json (Qwen2.5-VL-7B-Instruct and -3B-Instruct).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.model.identity import TINY_MODEL

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG, _PROCESSOR = "config.json", "processor_config.json"
_COPIED = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
# An empty safetensors file: the folder counts as a model, and the engine makes up its weights.
_NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"
_HEAD = 64
_MIN_PIXELS = 28 * 28
_QWEN_MIN_PIXELS, _QWEN_MAX_PIXELS = 128 * 28 * 28, 768 * 28 * 28
_QWEN_VISION = {
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
class Architecture:
    """Dimensions of a Qwen2.5-VL; heads have 64 dimensions.

    Attributes:
        max_pixels: Most pixels of a frame.
        max_tokens: Most tokens of a prompt.
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
        """Number of weights in the matrices, which are nearly all weights."""
        layer = self.hidden * (2 * self.hidden + 2 * self.kv_heads * _HEAD + 3 * self.intermediate)
        vision = self.vision_hidden * (4 * self.vision_hidden + 3 * self.vision_intermediate)
        merged = 4 * self.vision_hidden
        merger = merged * (merged + self.hidden)
        return self.layers * layer + self.vision_layers * vision + merger


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
    """Write a model folder for `load_format="dummy"` and return it.

    Args:
        architecture: Dimensions of the model.
        folder: Parent of the model folder.
    """
    return _write_folder(
        folder / architecture.name,
        _config(architecture),
        min_pixels=_MIN_PIXELS,
        max_pixels=architecture.max_pixels,
    )


def _config(wanted: Architecture) -> dict[str, Any]:
    config = _tiny_config()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedQwen:
    """Dimensions in which the published sizes differ."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    has_tied_embeddings: bool
    vision_intermediate: int


QWEN_7B = PublishedQwen(
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
QWEN_3B = PublishedQwen(
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


def write_qwen(qwen: PublishedQwen, folder: Path) -> Path:
    """Write a model folder below `folder` and return it."""
    return _write_folder(
        folder / qwen.name, _published_config(qwen), min_pixels=_QWEN_MIN_PIXELS, max_pixels=_QWEN_MAX_PIXELS
    )


def _published_config(qwen: PublishedQwen) -> dict[str, Any]:
    config = _tiny_config()
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
    vision = config["vision_config"] | _QWEN_VISION
    vision |= {"intermediate_size": qwen.vision_intermediate, "out_hidden_size": qwen.hidden}
    return config | {
        "dtype": "bfloat16",
        "tie_word_embeddings": qwen.has_tied_embeddings,
        "text_config": text,
        "vision_config": vision,
    }


def _tiny_config() -> dict[str, Any]:
    """Read the tiny model's `config.json`."""
    return _read(_CONFIG)


def _write_folder(model: Path, config: dict[str, Any], *, min_pixels: int, max_pixels: int) -> Path:
    """Write a model folder and return it.

    Args:
        model: The folder; created if missing.
        config: Contents of `config.json`.
        min_pixels: Fewest pixels to which the processor scales a frame.
        max_pixels: Most pixels to which the processor scales a frame.
    """
    processor = _read(_PROCESSOR)
    for part in ("image_processor", "video_processor"):
        processor[part]["size"] = {"shortest_edge": min_pixels, "longest_edge": max_pixels}
    model.mkdir(parents=True, exist_ok=True)
    for name in _COPIED:
        shutil.copyfile(TINY_MODEL / name, model / name)
    for name, value in ((_CONFIG, config), (_PROCESSOR, processor)):
        (model / name).write_text(json.dumps(value, indent=2) + "\n")
    (model / "model.safetensors").write_bytes(_NO_WEIGHTS)
    return model


def _read(name: str) -> dict[str, Any]:
    return dict(json.loads((TINY_MODEL / name).read_text()))
