"""Backends answer a run's questions; `model.backend` names vLLM, a server, or one of your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar, Literal

from infra.doctor import Check
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel_engine.protocol import Batch, EngineInfo, EngineTimes, Rejected
from tasks.domain import ONE_VIDEO, Answer, MediaCounts, RunSpec
from tasks.model.pool import Lifetime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import Settings
    from tasks.live.model import LiveModel
    from tasks.model.identity import ModelInfo

# Imported on use, as they import what runs a model.
_OURS = {
    "vllm": "tasks.model.engine.vllm_backend:VLLM",
    "openai": "tasks.model.server.openai_backend:OPENAI",
}

Reply = Answer | Rejected


class InferenceBackend(Lifetime):
    """Answers batches of questions: an engine process, several of them, or a server; a context manager.

    `start` begins to load the model, again after a loss, and returns at once; it raises a ConfigurationError if a
    package is missing.
    """

    @property
    def engines(self) -> int:
        """Number of engines that answer in parallel."""
        return 1

    @property
    @abstractmethod
    def times(self) -> EngineTimes:
        """How the time since the first start was spent."""

    @abstractmethod
    def wait_ready(self) -> EngineInfo:
        """Wait until questions can be answered.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: The server cannot be reached, or rejects requests.
        """

    @abstractmethod
    def answer(self, batch: Batch) -> list[Reply]:
        """Answer a batch; replies are in the order of its questions. Thread-safe.

        Raises:
            EngineLostError: The engine was lost so often that the questions cannot be the cause.
            EngineClosedError: The engine was closed meanwhile.
            ServerUnavailableError: The server does not respond; the error has the replies received before.
        """

    def confirm_model(self) -> None:
        """Check, before answers are written, that one model gave all of them since the last check.

        Raises:
            ConfigurationError: Another one answers.
            ServerUnavailableError: The server does not respond.
        """


class Backend(ABC):
    """Identifies a backend's model, checks it, and opens it.

    The methods raise a ModelError if the model cannot be used, and a ConfigurationError if the settings cannot, or the
    server or package that they name is missing or has another model.
    """

    name: ClassVar[str]  # in messages
    prunes_videos: ClassVar[bool] = False  # by `model.video_pruning_rate`
    shows_several: ClassVar[bool] = False  # videos and images, which `Question.media` lists
    writes_words: ClassVar[bool] = False  # in answer to questions without choices, or by a JSON schema
    takes_hub_models: ClassVar[bool] = False  # a backfill loads the earlier run's, whatever `model.name` is
    takes_engine_args: ClassVar[bool] = False

    @abstractmethod
    def model_info(self, name: str | None, settings: Settings) -> ModelInfo:
        """Identify the named model, by default that of the settings or of the server, without loading it."""

    @abstractmethod
    def open(self, model_info: ModelInfo, settings: Settings, *, media: MediaCounts = ONE_VIDEO) -> InferenceBackend:
        """Create, without starting it, what answers questions that show at most so many videos and images."""

    def open_live(
        self,
        model_info: ModelInfo,  # noqa: ARG002 - for those that take live sessions
        settings: Settings,  # noqa: ARG002
        *,
        sessions: int,  # noqa: ARG002
    ) -> tuple[InferenceBackend, LiveModel]:
        """Create what answers single requests and what answers live sessions, on the same engines; start neither."""
        raise ConfigurationError(
            f"The backend {self.name} takes no live sessions; set model.backend to vllm or openai."
        )

    def frames_as(
        self,
        model_info: ModelInfo,  # noqa: ARG002 - for those that offer both
        settings: Settings,  # noqa: ARG002
    ) -> Literal["video", "images"]:
        """Return whether the model is shown a video or separate images, which is part of the spec."""
        return "video"

    def check_media(self, media: MediaCounts, settings: Settings) -> None:  # noqa: B027 - most can, if any
        """Check, before a run starts, that the settings let one question show so many videos and images."""

    def check(self, model_info: ModelInfo, settings: Settings) -> None:
        """Check, before a run starts, that the backend can be used; by default, open it and wait for it."""
        with self.open(model_info, settings) as opened:
            opened.wait_ready()

    def diagnose(self, settings: Settings) -> Iterator[Check]:
        """Yield the checks of `reelabel doctor`; by default, those of a run."""
        try:
            model_info = self.model_info(None, settings)
            self.check(model_info, settings)
        except ReelabelError as error:
            yield Check(name=self.name, ok=False, detail=error.code, advice=error.message)
        else:
            yield Check(name=self.name, ok=True, detail=model_info.identity.name)


def require_media(backend: Backend, spec: RunSpec, media: MediaCounts, settings: Settings) -> None:
    """Raise a ConfigurationError if a backend, or the sampler, cannot show what jobs show, whatever its model."""
    if not media.are_several:
        return
    if not backend.shows_several:
        raise ConfigurationError(
            f"The backend {backend.name} shows one video per question, but jobs show {media}; leave these jobs out, or "
            "use the backend vllm or openai."
        )
    if spec.relevance:
        raise ConfigurationError(
            f"The sampler {spec.sampling.sampler} chooses frames of one video by what is asked, but jobs show {media}; "
            "use another sampler, or leave these jobs out."
        )
    if spec.frames_as == "images":
        raise ConfigurationError(
            f"With frames sent as images, a model cannot tell those of several videos and images apart, but jobs show "
            f"{media}; set server.frames to frame_file, use a model that takes videos, or leave these jobs out."
        )
    backend.check_media(media, settings)
    if spec.video_pruning_rate:
        raise ConfigurationError(
            f"video_pruning_rate works only for questions about one video, but jobs show {media}; leave out either "
            "it or these jobs."
        )


def require_words(backend: Backend, *, words: int) -> None:
    """Raise a ConfigurationError if a backend cannot answer jobs without choices, of which there are `words`."""
    if words and not backend.writes_words:
        raise ConfigurationError(
            f"The backend {backend.name} answers by choices alone, but some jobs have none; give them choices, or use "
            "the backend vllm or openai."
        )


def backend_of(settings: Settings) -> Backend:
    """Return the backend that the settings name, or raise a ConfigurationError."""
    name = settings.model.backend
    path = _OURS.get(name, name)
    if ":" not in path:
        raise ConfigurationError(
            f"model.backend {name} does not exist; use {', '.join(_OURS)} or package.module:OBJECT."
        )
    try:
        backend = resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"Cannot import the backend {name}: {error}.") from error
    if not isinstance(backend, Backend):
        kind = type(backend).__name__
        raise ConfigurationError(f"The backend {name} is of type {kind}; it must be an instance of Backend.")
    return backend
