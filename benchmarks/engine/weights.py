"""Random weights for a model folder: `python -m benchmarks.engine.weights FOLDER`.

vLLM's dummy weights are so small that all choices are equally probable to the last bits, so that labels of two
pipelines could not be compared. These weights are as large as those of a trained model.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_FILE = "model.safetensors"
_LEAST_BYTES = 4096
_EMBEDDING_DEVIATION = 0.05


def has_weights(folder: Path) -> bool:
    """Return whether the weights are more than an empty file."""
    path = folder / _FILE
    return path.exists() and path.stat().st_size > _LEAST_BYTES


def write_weights(folder: Path) -> None:
    """Write weights for a Qwen2.5-VL by its configuration; deterministic for a version of torch."""
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
        (Path(unfinished) / _FILE).replace(folder / _FILE)


if __name__ == "__main__":
    write_weights(Path(sys.argv[1]))
