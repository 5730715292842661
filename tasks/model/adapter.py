"""Files in a model's folder, and in that of a LoRA adapter, which is refused if vLLM would not apply all of it."""

from __future__ import annotations

import json
import os
import re
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, NamedTuple

from reelabel.text import escape_controls, pluralize, read_error
from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADAPTER_FILE = "adapter_config.json"
WITHOUT_CONFIG = "name a version that transformers loads, not a checkpoint of OpenCLIP"

_WEIGHT_PATTERNS = ("*.safetensors", "*.bin", "*.gguf", "*.pt")
_WEIGHTS = "adapter_model.safetensors"
_LOW_RANK = re.compile(r"\.lora_([AB]\.weight|embedding_[AB])$")  # the weights that are an adapter's
_MAX_HEADER_BYTES = 100_000_000  # as safetensors allows
# Every supported vLLM applies these, or they matter in training alone.
_APPLIED = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "eva_config",
        "exclude_modules",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "lora_alpha",
        "lora_dropout",
        "megatron_core",  # without megatron_config
        "peft_type",
        "peft_version",
        "qalora_group_size",  # without use_qalora
        "r",
        "revision",
        "target_modules",
        "task_type",
        "use_rslora",
    }
)
# Values of others that change nothing, besides null, false and empty ones. Other initial weights change the model's.
_NEUTRAL = {"bias": ("none",), "init_lora_weights": (True, "eva", "gaussian", "orthogonal")}
# Files of a training checkpoint besides the adapter.
_OF_TRAINING = ("adapter_model.*", "optimizer.*", "rng_state*", "scaler.*", "scheduler.*", "training_args.*")


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder that this user may look up."""
    return os.path.isdir(path)  # noqa: PTH112 - `Path.is_dir` raises if it may not


def weight_files(folder: Path) -> Iterator[Path]:
    """Yield the files that may have weights, by their names."""
    for pattern in _WEIGHT_PATTERNS:
        yield from folder.glob(pattern)


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of configuration; a ModelError says that it is missing, cannot be read, or has no JSON object."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelError(f"Model folder {path.parent} has no {path.name}; {WITHOUT_CONFIG}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"Cannot read {path}: {read_error(error)}.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not contain a JSON object.")
    return value


class Adapter(NamedTuple):
    """The model that an adapter adapts."""

    base: str  # a folder or hub name
    revision: str | None  # of the base


def is_adapter(folder: Path) -> bool:
    return (folder / ADAPTER_FILE).is_file()


def read_adapter(folder: Path) -> Adapter:
    """Read an adapter's configuration and the names of its weights.

    Raises:
        ModelError: A file is missing or cannot be read; or not every supported vLLM would apply all of the adapter.
    """
    _require_nothing_else(folder)
    config = read_json(folder / ADAPTER_FILE)
    base, rank, alpha = (config.get(name) for name in ("base_model_name_or_path", "r", "lora_alpha"))
    if config.get("peft_type") != "LORA" or not isinstance(base, str) or not base:
        raise ModelError(f"Adapter {folder} is no LoRA adapter of a named model; merge it into the model's folder.")
    if type(rank) is not int or rank < 1 or type(alpha) not in {int, float} or not config.get("target_modules"):
        raise ModelError(f"{folder / ADAPTER_FILE} has no valid r, lora_alpha and target_modules; correct it.")
    ignored = [name for name, value in config.items() if not _is_applied(name, value)]
    if ignored:
        names = escape_controls(", ".join(sorted(ignored)))
        raise ModelError(
            f"{folder / ADAPTER_FILE} sets {names}, which not every vLLM applies; merge the adapter into the model's "
            "folder."
        )
    _require_low_rank(folder)
    return Adapter(base=base, revision=config.get("revision"))


def _is_applied(name: str, value: object) -> bool:
    return name in _APPLIED or not value or value in _NEUTRAL.get(name, ())


def _require_nothing_else(folder: Path) -> None:
    others = [
        path.name for path in weight_files(folder) if not any(fnmatch(path.name, pattern) for pattern in _OF_TRAINING)
    ]
    if others and (folder / "config.json").is_file():
        raise ModelError(
            f"Folder {folder} has both a model and a LoRA adapter; move {ADAPTER_FILE} and {_WEIGHTS} to a folder of "
            "their own, or delete them if they are merged into the model."
        )
    if others:
        raise ModelError(
            f"Adapter {folder} has weights outside {_WEIGHTS}, in {escape_controls(min(others))}, which vLLM would "
            "leave out; merge the adapter into the model's folder."
        )


def _require_low_rank(folder: Path) -> None:
    names = _weight_names(folder / _WEIGHTS)
    if not names:
        raise ModelError(f"{folder / _WEIGHTS} is empty; save the adapter again.")
    others = sorted(name for name in names if not _LOW_RANK.search(name))
    if others:
        raise ModelError(
            f"{folder / _WEIGHTS} has {pluralize(len(others), 'weight')} besides those of LoRA, such as "
            f"{escape_controls(others[0])}, which vLLM would leave out; merge the adapter into the model's folder."
        )


def _weight_names(path: Path) -> set[str]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")  # of the header
            return {*json.loads(file.read(min(length, _MAX_HEADER_BYTES))).keys()} - {"__metadata__"}
    except FileNotFoundError:
        raise ModelError(f"Adapter {path.parent} has no {path.name}; copy it there.") from None
    except (OSError, ValueError, AttributeError, RecursionError):
        raise ModelError(f"Cannot read {path} as safetensors; copy it again.") from None
