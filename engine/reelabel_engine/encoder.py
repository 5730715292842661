"""The image-text encoder, in the process that alone imports torch and transformers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.metadata import version
from math import isqrt
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as nn
import transformers

from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EncoderConfig, EncoderInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt


_Inputs: TypeAlias = "dict[str, torch.Tensor]"  # arguments of the image encoder, of some frames
_BATCH_TEXTS = 256
_RESIZE_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What distinguishes one kind of model from another."""

    model_class: str
    side_px: Callable[[Any], int]


# By `model_type`. Checkpoints of SigLIP 2 with a fixed size are of the type siglip; those of type siglip2 are NaFlex.
ARCHITECTURES = {
    "siglip": Architecture(model_class="SiglipModel", side_px=lambda config: config.image_size),
    "siglip2": Architecture(
        model_class="Siglip2Model", side_px=lambda config: isqrt(config.num_patches) * config.patch_size
    ),
    "clip": Architecture(model_class="CLIPModel", side_px=lambda config: config.image_size),
}


class Encoder:
    """A model on one device: bf16 on a GPU, float32 on a CPU."""

    def __init__(self, config: EncoderConfig, *, started: float) -> None:
        """Load a model from safetensors; its own code is never run.

        Raises:
            ModelError: It has no text encoder, is of an unknown kind, or cannot be loaded.
        """
        self._batch_frames = config.batch_frames
        has_gpu = torch.cuda.is_available()
        self._device = torch.device("cuda" if has_gpu else "cpu")
        source = {
            "pretrained_model_name_or_path": config.model,
            "revision": config.revision,
            "trust_remote_code": False,
        }
        try:
            settings = transformers.AutoConfig.from_pretrained(**source)
            self._architecture = _architecture_of(settings.model_type, config.model)
            model_class = getattr(transformers, self._architecture.model_class)
            self._model = model_class.from_pretrained(
                config.model,
                revision=config.revision,
                use_safetensors=True,
                dtype=torch.bfloat16 if has_gpu else torch.float32,
                attn_implementation="sdpa",
            )
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
            self._processor = transformers.AutoImageProcessor.from_pretrained(**source)
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"{str(error).strip().splitlines()[0] if str(error).strip() else error!r}") from error
        self._model = self._model.to(self._device).eval()
        self._side_px = self._architecture.side_px(settings.vision_config)
        self._max_tokens = settings.text_config.max_position_embeddings
        self._dimensions = len(self.embed_texts(["a"])[0])
        try:
            self.embed_images([np.zeros((1, self._side_px, self._side_px, 3), np.uint8)])
        except (ValueError, RuntimeError, TypeError) as error:
            raise ModelError(f"its preprocessor_config.json does not fit its image encoder ({error})") from error
        self._start_ms = (time.perf_counter() - started) * 1e3

    def describe(self) -> EncoderInfo:
        has_gpu = self._device.type == "cuda"
        scale, bias = (getattr(self._model, name, None) for name in ("logit_scale", "logit_bias"))
        return EncoderInfo(
            device=torch.cuda.get_device_name() if has_gpu else "cpu",
            gpus=int(has_gpu),
            dtype=str(self._model.dtype).removeprefix("torch."),
            dimensions=self._dimensions,
            size_px=self._side_px,
            max_tokens=self._max_tokens,
            scale=None if scale is None else float(scale.detach().float().exp()),
            bias=None if bias is None else float(bias.detach().float()),
            start_ms=self._start_ms,
            versions={name: version(name) for name in ("torch", "torchvision", "transformers")},
        )

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def embed_images(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embed the frames of several videos, in batches across videos.

        Args:
            videos: RGB pixels of each; shape (N, H, W, 3), any size.

        Returns:
            L2-normalised vectors of all frames in order; shape (sum of N, D), float32.
        """
        parts = [self._embed(batch) for batch in self._batches(videos)]
        return np.concatenate(parts) if parts else np.empty((0, self._dimensions), np.float32)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts, each padded to the full length and without an attention mask, as in SigLIP's training.

        Returns:
            L2-normalised vectors; shape (K, D), float32.
        """
        parts = []
        for start in range(0, len(texts), _BATCH_TEXTS):
            tokens = self._tokenizer(
                [text.lower() for text in texts[start : start + _BATCH_TEXTS]],
                padding="max_length",
                max_length=self._max_tokens,
                truncation=True,
                return_tensors="pt",
            )
            found = self._model.get_text_features(input_ids=tokens["input_ids"].to(self._device))
            parts.append(_normalized(found.pooler_output))
        return np.concatenate(parts)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._tokenizer([text.lower() for text in texts], truncation=False)["input_ids"]]

    def _batches(self, videos: Sequence[npt.NDArray[np.uint8]]) -> Iterator[_Inputs]:
        waiting: list[_Inputs] = []
        room = self._batch_frames
        for frames in videos:
            start = 0
            while start < len(frames):
                taken = frames[start : start + room]
                waiting += self._prepare(taken)
                start, room = start + len(taken), room - len(taken)
                if not room:
                    yield _join(waiting)
                    waiting, room = [], self._batch_frames
        if waiting:
            yield _join(waiting)

    def _prepare(self, frames: npt.NDArray[np.uint8]) -> Iterator[_Inputs]:
        """Resize, crop and normalise frames (N, H, W, 3) by the model's own processor."""
        # A few large frames at a time, as they are floats while they are resized.
        step = max(1, _RESIZE_BYTES // frames[0].nbytes)
        for start in range(0, len(frames), step):
            # A copy, as torch warns of arrays that cannot be written to; on a GPU, bytes are sent, not floats.
            pixels = torch.from_numpy(frames[start : start + step].copy()).to(self._device).permute(0, 3, 1, 2)
            images = {"images": list(pixels), "input_data_format": "channels_first"}
            yield dict(self._processor(**images, return_tensors="pt", device=self._device))

    def _embed(self, inputs: _Inputs) -> npt.NDArray[np.float32]:
        values = {name: each.to(self._device) for name, each in inputs.items()}
        values["pixel_values"] = values["pixel_values"].to(self._model.dtype)
        return _normalized(self._model.get_image_features(**values).pooler_output)


def _join(batches: Sequence[_Inputs]) -> _Inputs:
    return {name: torch.cat([each[name] for each in batches]) for name in batches[0]}


def _normalized(vectors: torch.Tensor) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = nn.normalize(vectors.float(), dim=-1).cpu().numpy()
    return found


def _architecture_of(model_type: str, name: str) -> Architecture:
    known = ARCHITECTURES.get(model_type)
    if known:
        return known
    if model_type.endswith("_vision_model") and model_type.removesuffix("_vision_model") in ARCHITECTURES:
        raise ModelError(f"{name} has no text encoder, so nothing can be compared with its frames; use a whole model")
    raise ModelError(f"it is of the type {model_type}; the types that are known are {', '.join(ARCHITECTURES)}")
