"""Identify a model by its name or folder, without loading it; large files are read once, and their digests kept."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reelabel.disk import disk_errors, is_full
from reelabel.sampling.options import estimate_frames
from reelabel.sampling.registry import native_sampler
from reelabel.text import escape_controls, read_error
from reelabel_engine.environment import cache_folders
from reelabel_engine.errors import ModelError
from tasks.domain import ModelIdentity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import Settings

TINY_MODEL = Path(__file__).parents[1] / "demo" / "reelabel-tiny"
TINY_ENCODER = TINY_MODEL.with_name("reelabel-tiny-siglip")

_ADAPTER_FILE = "adapter_config.json"
_PROCESSOR_FILES = ("processor_config.json", "video_preprocessor_config.json", "preprocessor_config.json")
_WEIGHT_PATTERNS = ("*.safetensors", "*.bin", "*.gguf", "*.pt")
# Types of models that vLLM gives images alone, any number of them: they are shown a video's frames as images.
_IMAGES_ONLY = frozenset(
    {
        "aria",
        "aya_vision",
        "cohere2_vision",
        "gemma3",
        "gemma3n",
        "idefics3",
        "kimi_vl",
        "lfm2_vl",
        "llama4",
        "llava",
        "llava_next",
        "mistral3",
        "phi3_v",
        "pixtral",
        "smolvlm",
    }
)
_TOKENIZER_PATTERNS = ("tokenizer.*", "tekken.json", "vocab.*", "*.tiktoken", "*.model")
_WITHOUT_CONFIG = "name a version that transformers loads, not a checkpoint of OpenCLIP"
_WHOLE_FILE_BYTES = 64 * 1024**2  # above that, a file is worth a digest that is kept
_READERS = 8  # of large files, at once
_HEX_DIGITS = 64  # of a digest
_MAX_NAME = 100  # of what a model's files name
# Default limit of one frame: the target of Qwen's video processing, 768 x 28 x 28.
_MAX_PIXELS = 602_112
_PATCH_PX = 14  # of Qwen2-VL, whose first configurations left it out
# Their pixel limit applies to the whole video: frames x height x width.
_WHOLE_VIDEO_LIMIT = frozenset({"Qwen3VLVideoProcessor", "Glm4vVideoProcessor", "Glm46VVideoProcessor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What must be known about a model before frames are extracted for it."""

    identity: ModelIdentity  # part of the spec
    location: str  # what the engine loads: a folder or a hub name; empty if the backend loads no files
    size_multiple_px: int  # of sides that its processor does not rescale; 1 if it scales all frames to one size
    max_pixels: int | None  # the model's limit per frame; None without one
    max_video_pixels: int | None = None  # the model's limit for all frames of a video together; None without one
    revision: str | None = None  # commit on the hub; None for a folder
    adapter: str | None = None  # folder of the LoRA adapter that is added to it
    native_sampler: str = "uniform"  # the sampler that the model was trained with; uniform if unknown, as in vLLM
    native_frames: int | None = None  # number of frames it was trained with; None if the sampler or the settings decide
    takes_videos: bool = True  # whether it takes videos; otherwise it is shown their frames as images
    native_doubt: str = "its files are not at hand to name its video processor"

    def pixels_per_frame(self, num_frames: int) -> int | None:
        """Return the model's limit per frame for a given number of frames; None without one."""
        num_frames = estimate_frames(num_frames)
        # Frames are processed in pairs; the last of an odd number is repeated.
        share = self.max_video_pixels and self.max_video_pixels // (num_frames + num_frames % 2)
        return min(filter(None, (self.max_pixels, share)), default=None)


def max_frame_pixels(model_info: ModelInfo, settings: Settings, *, num_frames: int) -> int:
    """Return the limit of pixels per frame: the setting, or the model's limit, capped by the default."""
    return settings.sampling.max_pixels or min(model_info.pixels_per_frame(num_frames) or _MAX_PIXELS, _MAX_PIXELS)


def read_model_info(name: str, *, revision: str | None = None) -> ModelInfo:
    """Read the configuration of a folder or hub name; the folder of a LoRA adapter names the model that it adapts.

    Raises:
        ModelError: The folder is missing, or has no readable configuration or no weights; or the hub cannot be
            reached, or does not have the model.
    """
    folder = Path(name).expanduser()
    if (folder / _ADAPTER_FILE).is_file():
        return _adapter_info(folder.resolve(), revision)
    if folder.is_dir():
        return _folder_info(folder.resolve())
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelError(
            f"There is no model folder {folder}; give a folder, or a hub name such as 'Qwen/Qwen2.5-VL-7B-Instruct'."
        )
    with disk_errors(*cache_folders(os.environ)):
        return _hub_info(name, revision)


def model_file(model_info: ModelInfo, name: str) -> Path:
    """Return the path of a file of a model, which is fetched from the hub if the model is there."""
    if Path(model_info.location).is_dir():
        return Path(model_info.location) / name
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - only models on the hub need it

    return Path(hf_hub_download(model_info.location, name, revision=model_info.revision))


def require_tokenizer(model_info: ModelInfo) -> None:
    """Raise a ModelError if a model folder has no tokenizer; whether one on the hub has is seen as it is loaded."""
    folder = Path(model_info.location)
    if folder.is_dir() and not any(next(folder.glob(pattern), None) for pattern in _TOKENIZER_PATTERNS):
        raise ModelError(
            f"Model folder {folder} has no tokenizer; copy tokenizer.json and tokenizer_config.json there."
        )


def _adapter_info(folder: Path, revision: str | None) -> ModelInfo:
    adapter = _read_json(folder / _ADAPTER_FILE)
    base, rank = adapter.get("base_model_name_or_path"), adapter.get("r")
    if adapter.get("peft_type") != "LORA" or not isinstance(rank, int) or not isinstance(base, str):
        raise ModelError(f"Adapter {folder} is no LoRA adapter of a named model; merge it into the model's folder.")
    if not (folder / "adapter_model.safetensors").is_file():
        raise ModelError(f"Adapter {folder} has no adapter_model.safetensors; copy it there.")
    try:
        model_info = read_model_info(base, revision=adapter.get("revision") or revision)
    except ModelError as error:
        raise ModelError(f"Adapter {folder} names a base model that cannot be used: {error.message}") from None
    if model_info.adapter:
        raise ModelError(f"Adapter {folder} adapts another adapter; merge that into its model's folder.")
    identity = ModelIdentity(name=folder.name, fingerprint=fingerprint_folder(folder), base_model=model_info.identity)
    return replace(model_info, identity=identity, adapter=str(folder))


def _folder_info(folder: Path) -> ModelInfo:
    config = _read_json(folder / "config.json")
    if not any(next(folder.glob(pattern), None) for pattern in _WEIGHT_PATTERNS):
        raise ModelError(f"Model folder {folder} contains no weights (*.safetensors); copy them there.")
    processors = [_read_json(folder / file) for file in _PROCESSOR_FILES if (folder / file).is_file()]
    identity = ModelIdentity(name=folder.name, fingerprint=fingerprint_folder(folder))
    return _model_info(identity, str(folder), config, processors)


def _hub_info(name: str, revision: str | None) -> ModelInfo:
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - only models on the hub need it
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415

    try:
        _check_hub(name, revision)
        path = Path(hf_hub_download(name, "config.json", revision=revision))
    except Exception as error:
        if is_full(error):
            raise
        if isinstance(error, EntryNotFoundError):
            raise ModelError(f"Model {name} on the hub has no config.json; {_WITHOUT_CONFIG}.") from None
        raise ModelError(
            f"Cannot reach or find model {name} on the hub ({type(error).__name__}); check the name and the network, "
            "or give a model folder.",
        ) from None
    # The cache names the folder after the commit. Pin it: a branch may move.
    commit = path.parent.name
    processors = []
    for file in _PROCESSOR_FILES:
        try:
            processors.append(_read_json(Path(hf_hub_download(name, file, revision=commit))))
        except (OSError, ValueError) as error:
            if is_full(error):
                raise
    return _model_info(ModelIdentity(name=name, revision=commit), name, _read_json(path), processors)


def _model_info(
    identity: ModelIdentity, location: str, config: dict[str, Any], processors: list[dict[str, Any]]
) -> ModelInfo:
    max_pixels, max_video_pixels = _pixel_limits(processors)
    return ModelInfo(
        identity=identity,
        location=location,
        revision=identity.revision,
        size_multiple_px=_size_multiple_px(config),
        max_pixels=max_pixels,
        max_video_pixels=max_video_pixels,
        takes_videos=config.get("model_type") not in _IMAGES_ONLY,
        **_native(config, processors),
    )


def _check_hub(name: str, revision: str | None) -> None:
    """Look once for a model that is not cached: a download would retry for half a minute, and log each attempt."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache  # noqa: PLC0415

    if not isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
        get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision))


def fingerprint_folder(folder: Path) -> str:
    """Hash everything in a model folder; large files are read once, see `digest_files`.

    Hidden files and folders are not part of the model: tools keep metadata there.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and _is_model_file(path.relative_to(folder)))
    large = [path for path in files if path.stat().st_size > _WHOLE_FILE_BYTES]
    digests = dict(zip(large, digest_files(large), strict=True))
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(digests[path].encode() if path in digests else path.read_bytes())
    return digest.hexdigest()[:16]


def _is_model_file(path: Path) -> bool:
    return not any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelError(f"Model folder {path.parent} has no {path.name}; {_WITHOUT_CONFIG}.") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"Cannot read {path}: {read_error(error)}.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not contain a JSON object.")
    return value


def _size_multiple_px(config: dict[str, Any]) -> int:
    vision = (config.get("thinker_config") or config).get("vision_config") or {}
    merged = vision.get("spatial_merge_size")  # set only by models that take frames of any size
    return int(vision.get("patch_size", _PATCH_PX)) * int(merged) if merged else 1


def _pixel_limits(processors: list[dict[str, Any]]) -> tuple[int | None, int | None]:
    """Find the pixel limits of one frame and of all frames together."""
    for config in processors:
        video = config.get("video_processor") or config
        size = video.get("size") or {}
        # With both edges given, they are areas; a longest edge alone is a length, which is no limit on pixels.
        limit = video.get("max_pixels") or ("shortest_edge" in size and size.get("longest_edge"))
        if limit:
            is_whole_video = video.get("video_processor_type") in _WHOLE_VIDEO_LIMIT
            return (None, int(limit)) if is_whole_video else (int(limit), None)
    return None, None


def _native(config: dict[str, Any], processors: list[dict[str, Any]]) -> dict[str, Any]:
    """Find the sampler and the number of frames that the model was trained with."""
    videos = [processor.get("video_processor") or processor for processor in processors]
    frames = next((int(video["num_frames"]) for video in videos if video.get("num_frames")), None)
    processor = next((str(name) for video in videos if (name := video.get("video_processor_type"))), None)
    found = native_sampler(processor=processor, model_type=config.get("model_type"))
    if found is None:
        named = f"video processor {processor}" if processor else f"model type {config.get('model_type')}"
        return {
            "native_frames": frames,
            "native_doubt": f"no sampler is known for its {escape_controls(named[:_MAX_NAME])}",
        }
    if frames and found.yields_to_num_frames:
        return {"native_frames": frames, "native_doubt": ""}
    return {
        "native_sampler": found.name,
        "native_frames": frames if found.uses_num_frames else None,
        "native_doubt": "",
    }


def digest_files(paths: Sequence[Path]) -> list[str]:
    """Return the SHA-256 of each file's content, in hex.

    A digest is kept by the file's path, device, inode, size and times of change, and read again once one of them
    differs. Where nothing can be kept, every call reads all files.

    Raises:
        OSError: A file cannot be read.
    """
    with ThreadPoolExecutor(_READERS) as threads:
        return list(threads.map(_digest, paths))


def _digest(path: Path) -> str:
    kept = _place(path)
    with suppress(OSError):
        digest = kept.read_text(encoding="ascii", errors="replace")
        if len(digest) == _HEX_DIGITS and digest.isalnum():
            return digest
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if _place(path) == kept:  # else it was written meanwhile
        with suppress(OSError):  # a disk that is full, or no home
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(digest, encoding="ascii")  # what is read while it is written is too short
    return digest


def _place(path: Path) -> Path:
    status = path.stat()
    seen = (path.resolve(), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - may have no home
    return caches / "reelabel" / "digests" / hashlib.sha256(repr(seen).encode()).hexdigest()
