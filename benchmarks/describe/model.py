"""A SigLIP with random weights: `python -m benchmarks.describe.model FOLDER SEED LAYERS`.

Frames of 224 px, patches of 16 px and vectors of 768, as SigLIP base has them, but by default one layer of its twelve,
so that two cores embed some tens of frames a second. The tokenizer is the tiny model's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reelabel_engine.environment import find_python
from tasks.embedding.encoder import TINY_ENCODER

NAME = "siglip-base"
SIDE_PX, SIZE, LAYERS, BASE_LAYERS = 224, 768, 1, 12
_TOWER = {
    "hidden_size": SIZE,
    "intermediate_size": 4 * SIZE,
    "num_attention_heads": SIZE // 64,
}
_COPIED = ("tokenizer.json", "tokenizer_config.json")
_TOKENS = 16


def make_model(folder: Path, *, seed: int = 0, layers: int = LAYERS) -> Path:
    """Return the model's folder below another one; write it unless it is there.

    Args:
        folder: Folder that keeps models.
        seed: Models of different seeds have different weights, and so different embeddings.
        layers: Of each encoder; SigLIP base has BASE_LAYERS.
    """
    model = folder / "with-weights" / f"{NAME}-{layers}-{seed}"
    if not (model / "model.safetensors").exists():
        python = find_python(needs="transformers").path
        command = [python, "-P", "-m", "benchmarks.describe.model", str(model), str(seed), str(layers)]
        subprocess.run(command, check=True)  # noqa: S603 - our own module
    return model


def write_model(folder: Path, seed: int, layers: int) -> None:
    """Write the model; deterministic for a version of torch."""
    import torch  # noqa: PLC0415 - slow to import
    import transformers  # noqa: PLC0415

    torch.manual_seed(seed)
    tower = _TOWER | {"num_hidden_layers": layers}
    vision = tower | {"image_size": SIDE_PX, "patch_size": 16}
    text: dict[str, Any] = tower | {"vocab_size": 704, "max_position_embeddings": _TOKENS}
    text |= {"pad_token_id": 0, "eos_token_id": 0, "bos_token_id": None}
    config = transformers.SiglipConfig(text_config=text, vision_config=vision)
    model = transformers.SiglipModel(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as unfinished:
        model.save_pretrained(unfinished)
        transformers.SiglipImageProcessor(size={"height": SIDE_PX, "width": SIDE_PX}).save_pretrained(unfinished)
        for name in _COPIED:
            shutil.copy(TINY_ENCODER / name, unfinished)
        shutil.copytree(unfinished, folder, dirs_exist_ok=True)


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
