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
_EMBEDDING_DEVIATION = 0.05
SIGLIP_PX, SIGLIP_SIZE, SIGLIP_LAYERS = 224, 768, 12  # SigLIP base
_SIGLIP_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen:
    """Dimensions of a Qwen2.5-VL.

    Attributes:
        text: Other values of its `text_config`.
        vision: Values of its `vision_config`.
        pixels: To how many its processor scales a frame, at least and at most.
    """

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    mrope_section: tuple[int, int, int] = (16, 24, 24)
    has_tied_embeddings: bool = True
    text: dict[str, Any]
    vision: dict[str, Any]
    dtype: str = "bfloat16"
    pixels: tuple[int, int] = (128 * 28 * 28, 768 * 28 * 28)

    @property
    def config(self) -> dict[str, Any]:
        config = _read(_CONFIG)
        text = {
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "layer_types": ["full_attention"] * self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": self.mrope_section},
            "tie_word_embeddings": self.has_tied_embeddings,
        }
        return config | {
            "dtype": self.dtype,
            "tie_word_embeddings": self.has_tied_embeddings,
            "text_config": config["text_config"] | text | self.text,
            "vision_config": config["vision_config"] | self.vision | {"out_hidden_size": self.hidden},
        }


MEDIUM_SIDE_PX = 84
MEDIUM = Qwen(
    name="qwen2.5-vl-100m",
    hidden=768,
    intermediate=2304,
    layers=9,
    heads=12,
    kv_heads=2,
    mrope_section=(8, 12, 12),
    text={"max_position_embeddings": 8192},
    vision={
        "hidden_size": 512,
        "intermediate_size": 1536,
        "depth": 8,
        "num_heads": 8,
        "fullatt_block_indexes": [7],
    },
    dtype="float32",
    pixels=(28 * 28, MEDIUM_SIDE_PX**2),
)
_PUBLISHED_TEXT = {"max_position_embeddings": 128_000, "rms_norm_eps": 1e-6}
_PUBLISHED_VISION = {
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "depth": 32,
    "num_heads": 16,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
QWEN_7B = Qwen(
    name="qwen2.5-vl-7b",
    hidden=3584,
    intermediate=18944,
    layers=28,
    heads=28,
    kv_heads=4,
    has_tied_embeddings=False,
    text=_PUBLISHED_TEXT | {"vocab_size": 152_064, "max_window_layers": 28},
    vision=_PUBLISHED_VISION,
)
QWEN_3B = Qwen(
    name="qwen2.5-vl-3b",
    hidden=2048,
    intermediate=11008,
    layers=36,
    heads=16,
    kv_heads=2,
    text=_PUBLISHED_TEXT | {"vocab_size": 151_936, "max_window_layers": 36},
    vision=_PUBLISHED_VISION,
)


def write_qwen(qwen: Qwen, folder: Path) -> Path:
    """Write a model folder without weights, for `load_format="dummy"`, below `folder` and return it."""
    processor, model = _read(_PROCESSOR), folder / qwen.name
    for part in ("image_processor", "video_processor"):
        processor[part]["size"] = dict(zip(("shortest_edge", "longest_edge"), qwen.pixels, strict=True))
    model.mkdir(parents=True, exist_ok=True)
    for name in _COPIED:
        shutil.copyfile(TINY_MODEL / name, model / name)
    for name, value in ((_CONFIG, qwen.config), (_PROCESSOR, processor)):
        (model / name).write_text(json.dumps(value, indent=2) + "\n")
    (model / _WEIGHTS).write_bytes(_NO_WEIGHTS)
    return model


def _read(name: str) -> dict[str, Any]:
    return dict(json.loads((TINY_MODEL / name).read_text()))


def engine_config(name: str, folder: Path, **options: Any) -> tuple[EngineConfig, int]:  # noqa: ANN401 - its fields
    """Return how `tiny` or `100m`, with weights made up, is loaded, and the side of its square frames in pixels."""
    if name == "tiny":
        return EngineConfig(model=str(TINY_MODEL), **options), SIDE_PX
    model = str(write_qwen(MEDIUM, folder).resolve())
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
        write_qwen(MEDIUM, model.parent)
        _write_by_torch("qwen", model)
    return model


def make_siglip(folder: Path, *, seed: int = 0, layers: int = 1) -> Path:
    """Return the folder of a SigLIP base with so many layers, whose random weights are written unless they exist."""
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
