"""Which model a name or a folder stands for, read without loading it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import ModelError
from tasks.domain import ModelIdentity

TINY_MODEL = Path(__file__).parents[1] / "demo" / "reelabel-tiny"

_PROCESSOR_FILES = ("processor_config.json", "video_preprocessor_config.json", "preprocessor_config.json")
_WEIGHT_PATTERNS = ("*.safetensors", "*.bin", "*.gguf", "*.pt")
_WHOLE_FILE_BYTES = 64 * 1024**2
_SAMPLE_BYTES = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What must be known of a model before its frames are extracted.

    Attributes:
        identity: Goes into the spec.
        location: What the engine loads: a folder or a hub name.
        revision: The hub's commit; None for a folder.
        size_multiple_px: Frame width and height must be multiples of this.
        max_pixels: The model's own limit for one frame; None where it names none.
    """

    identity: ModelIdentity
    location: str
    size_multiple_px: int
    max_pixels: int | None
    revision: str | None = None


def read_model_card(name: str | None, *, revision: str | None = None, dtype: str = "auto") -> ModelCard:
    """Look at a model's configuration.

    Args:
        name: Folder or hub name; None is the tiny model that ships with Reelabel.
        revision: Hub revision.
        dtype: Numeric type as served.

    Raises:
        ModelError: The folder is missing, or has no readable configuration or no weights.
    """
    folder = TINY_MODEL if name is None else Path(name).expanduser()
    if folder.is_dir():
        return _folder_card(folder.resolve(), dtype)
    if name is not None and (name.count("/") != 1 or name.startswith((".", "/", "~"))):
        raise ModelError(f"There is no model folder {folder}; give a folder, or a hub name like 'Qwen/Qwen2.5-VL-7B'.")
    return _hub_card(str(name), revision, dtype)


def _folder_card(folder: Path, dtype: str) -> ModelCard:
    config = _read_json(folder / "config.json")
    if not any(next(folder.glob(pattern), None) for pattern in _WEIGHT_PATTERNS):
        raise ModelError(f"Model folder {folder} holds no weights (*.safetensors); copy them there.")
    processors = [_read_json(folder / file) for file in _PROCESSOR_FILES if (folder / file).is_file()]
    return ModelCard(
        identity=ModelIdentity(name=folder.name, fingerprint=fingerprint_folder(folder), dtype=dtype),
        location=str(folder),
        size_multiple_px=_size_multiple_px(config),
        max_pixels=_max_pixels(processors),
    )


def _hub_card(name: str, revision: str | None, dtype: str) -> ModelCard:
    try:
        from huggingface_hub import hf_hub_download  # noqa: PLC0415 - comes with the engine's extra
    except ImportError:
        raise ModelError(f"Model {name} is on a hub; install 'reelabel[gpu]' or 'reelabel[cpu]'.") from None
    try:
        _look_on_hub(name, revision)
        path = Path(hf_hub_download(name, "config.json", revision=revision))
    except Exception as error:  # noqa: BLE001 - the hub's client passes on what its HTTP library of the day raises
        raise ModelError(
            f"Cannot reach or find model {name} on the hub ({type(error).__name__}); check its name and the network, "
            "or give a model folder.",
        ) from None
    # The cache keeps each commit in a folder of its name; a branch may move on.
    commit = path.parent.name
    processors = []
    for file in _PROCESSOR_FILES:
        with contextlib.suppress(OSError, ValueError):
            processors.append(_read_json(Path(hf_hub_download(name, file, revision=commit))))
    return ModelCard(
        identity=ModelIdentity(name=name, revision=commit, dtype=dtype),
        location=name,
        revision=commit,
        size_multiple_px=_size_multiple_px(_read_json(path)),
        max_pixels=_max_pixels(processors),
    )


def _look_on_hub(name: str, revision: str | None) -> None:
    """Ask once for a model that is not in the hub's cache: a download would try for half a minute, and log it all."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache  # noqa: PLC0415

    if not isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
        get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision))


def fingerprint_folder(folder: Path) -> str:
    """Hash a model folder: small files whole, large ones by size, first and last MiB."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        size_bytes = path.stat().st_size
        digest.update(f"{path.relative_to(folder)}\0{size_bytes}\0".encode())
        with path.open("rb") as file:
            if size_bytes <= _WHOLE_FILE_BYTES:
                digest.update(file.read())
            else:
                digest.update(file.read(_SAMPLE_BYTES))
                file.seek(-_SAMPLE_BYTES, 2)
                digest.update(file.read())
    return digest.hexdigest()[:16]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelError(f"Model folder {path.parent} has no {path.name}; is it a Hugging Face model folder?") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"Cannot read {path}: {error}.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not hold a JSON object.")
    return value


def _size_multiple_px(config: dict[str, Any]) -> int:
    vision = config.get("vision_config") or {}
    return int(vision.get("patch_size", 14)) * int(vision.get("spatial_merge_size", 2))


def _max_pixels(processors: list[dict[str, Any]]) -> int | None:
    for config in processors:
        video = config.get("video_processor") or config
        size = video.get("size") or {}
        limit = video.get("max_pixels") or size.get("longest_edge")
        if limit:
            return int(limit)
    return None
