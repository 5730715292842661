"""Files in a model's folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reelabel.text import read_error
from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHOUT_CONFIG = "name a version that transformers loads, not a checkpoint of OpenCLIP"

_WEIGHT_PATTERNS = ("*.safetensors", "*.bin", "*.gguf", "*.pt")


def local_path(name: str) -> Path:
    """Return the path that a name stands for if it is one; `~` of an unknown user stays as it is."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 - `Path.expanduser` raises for an unknown user


def weight_files(folder: Path) -> Iterator[Path]:
    """Yield the files that may have weights, by their names."""
    for pattern in _WEIGHT_PATTERNS:
        yield from folder.glob(pattern)


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of configuration.

    Raises:
        ModelError: It is missing, cannot be read, or has no JSON object.
    """
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelError(f"Model folder {path.parent} has no {path.name}; {WITHOUT_CONFIG}.") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"Cannot read {path}: {read_error(error)}.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not contain a JSON object.")
    return value
