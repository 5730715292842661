"""Creates model folders for benchmarks: a Qwen2.5-VL of any size, with random weights or none, and a SigLIP.

Whatever a benchmark does not depend on, such as the tokenizer and the chat template, is that of the demo's models: the
cost of a prompt depends on its pixels. The sizes of `QWEN_7B` and `QWEN_3B` are those of Qwen's own config.json and
preprocessor_config.json (Qwen2.5-VL-7B-Instruct and -3B-Instruct). `python -m benchmarks.models KIND FOLDER ...` writes
weights, by the Python that has torch.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reelabel_engine.environment import find_python
from reelabel_engine.protocol import EngineConfig
from tasks.demo.actors import SIDE_PX
from tasks.model.identity import TINY_ENCODER, TINY_MODEL

_CONFIG, _PROCESSOR, _WEIGHTS = "config.json", "processor_config.json", "model.safetensors"
_COPIED = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
# An empty safetensors file: the folder counts as a model, and the engine makes up its weights.
_NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"
_LEAST_BYTES = 4096  # of a file that has weights
_HEAD = 64
_MIN_PIXELS = 28 * 28
_QWEN_MIN_PIXELS, _QWEN_MAX_PIXELS = 128 * 28 * 28, 768 * 28 * 28
_EMBEDDING_DEVIATION = 0.05
SIGLIP_PX, SIGLIP_SIZE, SIGLIP_LAYERS = 224, 768, 12  # SigLIP base; by default, one layer of its twelve
_SIGLIP_TOKENS = 16
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
MEDIUM_SIDE_PX = 84


def write_architecture(architecture: Architecture, folder: Path) -> Path:
    """Write a model folder for `load_format="dummy"` below `folder` and return it."""
    config = _config(architecture)
    return _write_folder(folder / architecture.name, config, _MIN_PIXELS, architecture.max_pixels)


def _config(wanted: Architecture) -> dict[str, Any]:
    config = _read(_CONFIG)
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
    return _write_folder(folder / qwen.name, _published_config(qwen), _QWEN_MIN_PIXELS, _QWEN_MAX_PIXELS)


def _published_config(qwen: PublishedQwen) -> dict[str, Any]:
    config = _read(_CONFIG)
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


def _write_folder(model: Path, config: dict[str, Any], min_pixels: int, max_pixels: int) -> Path:
    """Write a model folder without weights, whose processor scales frames to some pixels."""
    processor = _read(_PROCESSOR)
    for part in ("image_processor", "video_processor"):
        processor[part]["size"] = {"shortest_edge": min_pixels, "longest_edge": max_pixels}
    model.mkdir(parents=True, exist_ok=True)
    for name in _COPIED:
        shutil.copyfile(TINY_MODEL / name, model / name)
    for name, value in ((_CONFIG, config), (_PROCESSOR, processor)):
        (model / name).write_text(json.dumps(value, indent=2) + "\n")
    (model / _WEIGHTS).write_bytes(_NO_WEIGHTS)
    return model


def _read(name: str) -> dict[str, Any]:
    return dict(json.loads((TINY_MODEL / name).read_text()))


def engine_config(name: str, folder: Path, **options: Any) -> tuple[EngineConfig, int]:  # noqa: ANN401 - its fields
    """Return how `tiny` or `100m`, with weights made up, is loaded, and the side of its square frames in pixels."""
    if name == "tiny":
        return EngineConfig(model=str(TINY_MODEL), **options), SIDE_PX
    model = str(write_architecture(MEDIUM, folder).resolve())
    return EngineConfig(model=model, load_format="dummy", **options), MEDIUM_SIDE_PX


def model_folder(name: str, folder: Path) -> Path:
    """Return the folder of `tiny` or `100m`, whose random weights are written below `folder` unless they exist.

    vLLM's made-up weights are so small that all choices are equally probable to the last bits, so that labels of two
    pipelines could not be compared. These are as large as those of a trained model.
    """
    if name == "tiny":
        return TINY_MODEL
    model = folder / "with-weights" / MEDIUM.name
    weights = model / _WEIGHTS
    if not (weights.exists() and weights.stat().st_size > _LEAST_BYTES):
        write_architecture(MEDIUM, model.parent)
        _write_by_torch("qwen", model)
    return model


def make_siglip(folder: Path, *, seed: int = 0, layers: int = 1) -> Path:
    """Return the folder of a SigLIP base of so many layers, whose random weights are written unless they exist."""
    model = folder / "with-weights" / f"siglip-base-{layers}-{seed}"
    if not (model / _WEIGHTS).exists():
        _write_by_torch("siglip", model, str(seed), str(layers))
    return model


def _write_by_torch(kind: str, model: Path, *arguments: str) -> None:
    command = [find_python(needs="transformers").path, "-P", "-m", "benchmarks.models", kind, str(model), *arguments]
    subprocess.run(command, check=True)  # noqa: S603 - our own module


def _write_qwen_weights(folder: Path) -> None:
    import torch  # noqa: PLC0415 - slow to import
    from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration  # noqa: PLC0415

    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(AutoConfig.from_pretrained(folder)).to(torch.float32)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            deviation = _EMBEDDING_DEVIATION if "embed_tokens" in name else parameter[0].numel() ** -0.5
            torch.nn.init.normal_(parameter, std=deviation)
    with TemporaryDirectory(dir=folder) as unfinished:
        model.save_pretrained(unfinished)
        (Path(unfinished) / _WEIGHTS).replace(folder / _WEIGHTS)


def _write_siglip(folder: Path, seed: str, layers: str) -> None:
    import torch  # noqa: PLC0415 - slow to import
    import transformers  # noqa: PLC0415

    torch.manual_seed(int(seed))
    encoder = {"hidden_size": SIGLIP_SIZE, "intermediate_size": 4 * SIGLIP_SIZE, "num_hidden_layers": int(layers)}
    encoder |= {"num_attention_heads": SIGLIP_SIZE // 64}
    text: dict[str, Any] = encoder | {"vocab_size": 704, "max_position_embeddings": _SIGLIP_TOKENS}
    text |= {"pad_token_id": 0, "eos_token_id": 0, "bos_token_id": None}
    vision = encoder | {"image_size": SIGLIP_PX, "patch_size": 16}
    model = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=vision)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as unfinished:
        model.save_pretrained(unfinished)
        transformers.SiglipImageProcessor(size={"height": SIGLIP_PX, "width": SIGLIP_PX}).save_pretrained(unfinished)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(TINY_ENCODER / name, unfinished)
        shutil.copytree(unfinished, folder, dirs_exist_ok=True)


if __name__ == "__main__":
    write: Any = {"qwen": _write_qwen_weights, "siglip": _write_siglip}[sys.argv[1]]
    write(Path(sys.argv[2]), *sys.argv[3:])
