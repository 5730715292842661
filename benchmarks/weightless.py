"""Model folders without weights, to be loaded by `load_format="dummy"`: what is not measured is the tiny model's."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from tasks.model.identity import TINY_MODEL

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG, _PROCESSOR = "config.json", "processor_config.json"
_AS_THEY_ARE = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
# A file of safetensors that holds none: the folder passes for a model, its weights are made up at the start.
_NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"


def tiny_config() -> dict[str, Any]:
    """Read the tiny model's `config.json`."""
    return _read(_CONFIG)


def write_weightless(model: Path, config: dict[str, Any], *, min_pixels: int, max_pixels: int) -> Path:
    """Write a model's folder; gives it back.

    Args:
        model: The folder; is made where it is missing.
        config: Its `config.json`.
        min_pixels: Fewest pixels to which its processor scales one frame.
        max_pixels: Most of them.
    """
    processor = _read(_PROCESSOR)
    for part in ("image_processor", "video_processor"):
        processor[part]["size"] = {"shortest_edge": min_pixels, "longest_edge": max_pixels}
    model.mkdir(parents=True, exist_ok=True)
    for name in _AS_THEY_ARE:
        shutil.copyfile(TINY_MODEL / name, model / name)
    for name, value in ((_CONFIG, config), (_PROCESSOR, processor)):
        (model / name).write_text(json.dumps(value, indent=2) + "\n")
    (model / "model.safetensors").write_bytes(_NO_WEIGHTS)
    return model


def _read(name: str) -> dict[str, Any]:
    return dict(json.loads((TINY_MODEL / name).read_text()))
