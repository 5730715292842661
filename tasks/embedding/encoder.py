"""The image-text encoder: a CLIP or SigLIP model in child processes that load it once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from infra.errors import EngineLostError
from reelabel.errors import ConfigurationError
from reelabel_engine.devices import assign_gpus, visible_gpus
from reelabel_engine.environment import encoder_environment, find_python
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EmbedImages, EmbedTexts, EncoderConfig, EncoderInfo, LoadEncoder, Request, Vectors
from tasks.model.identity import ModelInfo, read_model_info
from tasks.model.model_process import ModelProcess
from tasks.model.pool import Pool
from tasks.model.warm_engines import WarmEngines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from infra.settings import Settings
    from tasks.model.running_process import RunningProcess

# The image-text model that the message about a missing one suggests.
_EXAMPLE = "google/siglip-so400m-patch14-384"


class EmbeddedTexts(NamedTuple):
    """Texts as vectors."""

    vectors: npt.NDArray[np.float32]  # L2-normalised; shape (K, D), float32
    tokens: tuple[int, ...]  # tokens of each text, including special ones; the model reads at most `max_tokens`


class Encoder(Protocol):
    """Embeds images and texts. Thread-safe."""

    processes: int  # number of processes that work in parallel
    loaded: EncoderInfo | None  # what they report, once `info` has been called; None before

    def start(self) -> None: ...

    def info(self) -> EncoderInfo:
        """Wait until the model is loaded; raises a ModelError, DiskFullError or EngineClosedError if that fails."""

    def embed_images(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embed the frames of several videos, each of shape (N, H, W, 3); return vectors of shape (sum of N, D).

        Raises:
            EngineLostError: The encoder died or hung twice.
            ModelError: It cannot be reloaded, or its vectors are not finite.
        """

    def embed_texts(self, texts: Sequence[str]) -> EmbeddedTexts:
        """Embed texts, truncated at the model's limit. Raises like `embed_images`."""

    def close(self) -> None: ...


class EncoderProcess(ModelProcess[EncoderConfig]):
    """An encoder in its own process; a context manager that shuts it down.

    Requests of several threads are queued in the process, so that it does not wait for the next one. If it dies, it is
    restarted and the request repeated, once per request.
    """

    noun = "The encoder"
    processes = 1
    images_embedded = 0
    loaded: EncoderInfo | None = None

    def _begin(self) -> RunningProcess:
        python = find_python(self._python, needs="transformers")
        return self._start(python, LoadEncoder(config=self._config), encoder_environment(self._config))

    def info(self) -> EncoderInfo:
        info: EncoderInfo = self._wait_loaded(self._ensure_running())
        self.loaded = info
        return info

    def embed_images(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        for frames in videos:
            if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or 0 in frames.shape:  # noqa: PLR2004
                raise ValueError(f"frames are uint8 of (N, H, W, 3), not {frames.dtype} of {frames.shape}")
        count = sum(map(len, videos))
        if not count:
            return np.empty((0, self.info().dimensions), np.float32)
        vectors = self._ask(lambda number: EmbedImages(number=number, videos=tuple(videos)), count).vectors
        with self._lock:
            self.images_embedded += count
        return vectors

    def embed_texts(self, texts: Sequence[str]) -> EmbeddedTexts:
        reply = self._ask(lambda number: EmbedTexts(number=number, texts=tuple(texts)), len(texts))
        return EmbeddedTexts(reply.vectors, reply.tokens)

    def _ask(self, build: Callable[[int], Request], count: int) -> Vectors:
        dimensions = self.info().dimensions  # read first: the encoder may be closed by the time of the reply
        try:
            [found] = self.ask(build)
        except EngineLostError:
            [found] = self.ask(build)
        return self._checked(found, (count, dimensions))

    def _checked(self, reply: Vectors, shape: tuple[int, int]) -> Vectors:
        if reply.vectors.shape != shape or reply.vectors.dtype != np.float32:
            raise ModelError(f"Model {self._config.name} returned no vectors of shape {shape}.")
        if not np.isfinite(reply.vectors).all():
            raise ModelError(f"Model {self._config.name} returned vectors that are not finite; its weights are faulty.")
        return reply


class EncoderPool(Pool[EncoderProcess]):
    """A pool of encoders of one model, each on a GPU; each request goes to the least busy one."""

    loaded: EncoderInfo | None = None

    def __init__(self, members: Sequence[EncoderProcess]) -> None:
        super().__init__(members)
        self.processes = sum(member.processes for member in members)

    def info(self) -> EncoderInfo:
        infos = [member.info() for member in self._members]
        start_ms = max(info.start_ms for info in infos)
        self.loaded = replace(infos[0], gpus=sum(info.gpus for info in infos), start_ms=start_ms)
        return self.loaded

    def embed_images(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        return self._request(lambda member: member.embed_images(videos))

    def embed_texts(self, texts: Sequence[str]) -> EmbeddedTexts:
        return self._request(lambda member: member.embed_texts(texts))


def read_encoder_info(settings: Settings, name: str | None = None, *, revision: str | None = None) -> ModelInfo:
    """Identify an image-text model without loading it; arguments default to the settings."""
    name, revision = name or settings.describe.model, revision or settings.describe.revision
    if not name:
        raise ConfigurationError(
            "No image-text model is named; set REELABEL_DESCRIBE_MODEL, or --model of describe and search: `export "
            f"REELABEL_DESCRIBE_MODEL={_EXAMPLE}`."
        )
    model_info = read_model_info(name, revision=revision)
    if model_info.adapter:
        raise ModelError(f"Image-text model {name} is a LoRA adapter; merge it into the model's folder.")
    return model_info


def open_encoder(settings: Settings, model_info: ModelInfo) -> EncoderProcess | EncoderPool:
    """Create the encoder of a model, with `describe.engines` processes; nothing is started; raises as `assign_gpus`."""
    chosen, model = settings.describe, settings.model
    gpus = visible_gpus()
    if gpus:
        WarmEngines.of(settings.home).end()  # otherwise it would hold most of their memory
    shares = assign_gpus(gpus, engines=chosen.engines, tensor_parallel_size=1)
    members = [
        EncoderProcess(
            EncoderConfig(model=model_info.location, revision=model_info.revision, devices=devices),
            log_path=settings.home / "logs" / ("encoder.log" if len(shares) == 1 else f"encoder-{number}.log"),
            log_as_json=settings.log.format == "json",
            python=model.python,
        )
        for number, devices in enumerate(shares)
    ]
    return members[0] if len(members) == 1 else EncoderPool(members)
