"""Identifies a model by its name or folder, without loading it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reelabel.disk import disk_errors, is_full
from reelabel.sampling.options import estimate_frames
from reelabel.sampling.registry import native_sampler
from reelabel.sources.object_info import expand_home
from reelabel.text import escape_controls, read_error, reason_of
from reelabel_engine.environment import cache_folders
from reelabel_engine.errors import ModelError
from reelabel_engine.fingerprint import fingerprint_folder
from tasks.domain import ModelIdentity
from tasks.model.adapter import WITHOUT_CONFIG, is_adapter, read_adapter, read_json, weight_files

if TYPE_CHECKING:
    from infra.settings import Settings

TINY_MODEL = Path(__file__).parents[1] / "demo" / "reelabel-tiny"
TINY_ENCODER = TINY_MODEL.with_name("reelabel-tiny-siglip")

_PROCESSOR_FILES = ("processor_config.json", "video_preprocessor_config.json", "preprocessor_config.json")
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
_MAX_NAME = 100  # of what a model's files name
# Default limit of one frame: the target of Qwen's video processing, 768 x 28 x 28.
_MAX_PIXELS = 602_112
_PATCH_PX = 14  # of Qwen2-VL, whose first configurations left it out
# Their pixel limit applies to the whole video: frames x height x width.
_WHOLE_VIDEO_LIMIT = frozenset({"Qwen3VLVideoProcessor", "Glm4vVideoProcessor", "Glm46VVideoProcessor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The facts about a model that extraction and the spec depend on."""

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
    try:
        return _read_model_info(name, revision)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise ModelError(
            f"The name or the configuration of model {name} has a value that no model has ({reason_of(str(error))}); "
            "copy its files again."
        ) from None


def _read_model_info(name: str, revision: str | None) -> ModelInfo:
    folder = expand_home(name)
    try:
        if is_adapter(folder):
            return _adapter_info(folder.resolve(), revision)
        if folder.is_dir():
            return _folder_info(folder.resolve())
    except OSError as error:
        raise ModelError(f"Cannot read model folder {folder}: {read_error(error)}.") from None
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
    """Raise a ModelError if a model folder has no tokenizer; one on the hub is checked when it is loaded."""
    folder = Path(model_info.location)
    if folder.is_dir() and not any(next(folder.glob(pattern), None) for pattern in _TOKENIZER_PATTERNS):
        raise ModelError(
            f"Model folder {folder} has no tokenizer; copy tokenizer.json and tokenizer_config.json there."
        )


def _adapter_info(folder: Path, revision: str | None) -> ModelInfo:
    adapter = read_adapter(folder)
    # Relative to the adapter, or else to the working directory, as PEFT wrote it.
    beside = folder / expand_home(adapter.base)
    base = str(beside) if beside.is_dir() else adapter.base
    if is_adapter(expand_home(base)):
        raise ModelError(
            f"The base_model_name_or_path of adapter {folder} is an adapter, too; merge that one into its model's "
            "folder, and set base_model_name_or_path to it."
        )
    try:
        model_info = read_model_info(base, revision=adapter.revision or revision)
    except ModelError as error:
        raise ModelError(
            f"The base_model_name_or_path of adapter {folder} cannot be used: {escape_controls(error.message)}"
        ) from None
    identity = ModelIdentity(name=folder.name, fingerprint=fingerprint_folder(folder), base_model=model_info.identity)
    return replace(model_info, identity=identity, adapter=str(folder))


def _folder_info(folder: Path) -> ModelInfo:
    config = read_json(folder / "config.json")
    if not any(weight_files(folder)):
        raise ModelError(f"Model folder {folder} contains no weights (*.safetensors); copy them there.")
    processors = [read_json(folder / file) for file in _PROCESSOR_FILES if (folder / file).is_file()]
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
            raise ModelError(
                f"Model {name} on the hub has no config.json; {WITHOUT_CONFIG}; if it is an adapter, download it with "
                f"`hf download {name} --local-dir FOLDER`, and give that folder."
            ) from None
        raise ModelError(
            f"Cannot reach or find model {name} on the hub ({type(error).__name__}); check the name and the network, "
            "or give a model folder."
        ) from None
    # The cache names the folder after the commit. Pin it: a branch may move.
    commit = path.parent.name
    processors = []
    for file in _PROCESSOR_FILES:
        try:
            processors.append(read_json(Path(hf_hub_download(name, file, revision=commit))))
        except (OSError, ValueError) as error:
            if is_full(error):
                raise
    return _model_info(ModelIdentity(name=name, revision=commit), name, read_json(path), processors)


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
    """Request the metadata of a model that is not cached: a download would retry for half a minute, and log that."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache  # noqa: PLC0415

    if not isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
        get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision))


def _size_multiple_px(config: dict[str, Any]) -> int:
    vision = (config.get("thinker_config") or config).get("vision_config") or {}
    merged = vision.get("spatial_merge_size")  # set only by models that take frames of any size
    return _count(vision.get("patch_size", _PATCH_PX)) * _count(merged) if merged else 1


def _pixel_limits(processors: list[dict[str, Any]]) -> tuple[int | None, int | None]:
    """Find the pixel limits of one frame and of all frames together."""
    for config in processors:
        video = config.get("video_processor") or config
        size = video.get("size")
        # With both edges given, they are areas; a longest edge alone is a length, which is no limit on pixels. So is a
        # single number.
        areas = size if isinstance(size, dict) and "shortest_edge" in size else {}
        if limit := video.get("max_pixels") or areas.get("longest_edge"):
            is_whole_video = video.get("video_processor_type") in _WHOLE_VIDEO_LIMIT
            return (None, _count(limit)) if is_whole_video else (_count(limit), None)
    return None, None


def _count(value: Any) -> int:  # noqa: ANN401 - of a file
    """Return a number of a configuration; raises an ArithmeticError, TypeError or ValueError if it is none above 0."""
    count = int(value)
    if count < 1:
        raise ValueError(f"{count} is not above 0")
    return count


def _native(config: dict[str, Any], processors: list[dict[str, Any]]) -> dict[str, Any]:
    """Find the sampler and the number of frames that the model was trained with."""
    videos = [processor.get("video_processor") or processor for processor in processors]
    frames = next((_count(video["num_frames"]) for video in videos if video.get("num_frames")), None)
    processor = next((str(name) for video in videos if (name := video.get("video_processor_type"))), None)
    found = native_sampler(processor=processor, model_type=config.get("model_type"))
    if found is None:
        named = f"video processor {processor}" if processor else f"model type {config.get('model_type')}"
        doubt = f"no sampler is known for its {escape_controls(named[:_MAX_NAME])}"
        return {"native_frames": frames, "native_doubt": doubt}
    if frames and found.yields_to_num_frames:
        return {"native_frames": frames, "native_doubt": ""}
    frames = frames if found.uses_num_frames else None
    return {"native_sampler": found.name, "native_frames": frames, "native_doubt": ""}
