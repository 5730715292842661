"""The deployments that hold models, and what stands for them in the deployment that asks them."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

from flows.run.spec import engine_settings, make_spec
from flows.serve.ray.calls import call, outcome_of
from infra.settings import load_settings
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EngineTimes
from tasks.domain import ONE_VIDEO
from tasks.embedding.backend import towers_card
from tasks.embedding.opened import open_towers
from tasks.model.backend import backend_of, open_backend
from tasks.model.lifetime import Lifetime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from reelabel_engine.protocol import Batch, EngineInfo, TowersInfo
    from tasks.model.backend import Reply


class _Model:
    """A deployment that holds a model; Ray Serve replaces a replica whose model cannot be loaded any more."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._fault: ModelError | None = None

    def check_health(self) -> None:
        """Tell Ray Serve whether the model can be used.

        Raises:
            ModelError: It cannot be loaded again.
        """
        if self._fault:
            raise self._fault

    def _outcome(self, work: Callable[[], object]) -> object:
        outcome = outcome_of(work)
        if isinstance(outcome, ModelError):
            self._fault = outcome
        return outcome

    def __del__(self) -> None:
        """End its processes."""
        self._stack.close()


class Engine(_Model):
    """The deployment that answers questions: the engine, or whatever `model.backend` names."""

    def __init__(self) -> None:
        """Load the model, as the settings of this machine say.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: The settings conflict, or a server cannot be reached.
        """
        super().__init__()
        settings = load_settings()
        backend = backend_of(settings)
        card = backend.card(None, settings)
        spec = make_spec(card, settings)
        opened = open_backend(backend, card, engine_settings(settings, spec), sampling=spec.sampling, media=ONE_VIDEO)
        self._backend = self._stack.enter_context(opened)
        self._info = self._backend.wait_ready()

    def info(self) -> EngineInfo:
        """Return what the engine reports."""
        return self._info

    def answer(self, batch: Batch) -> object:
        """Answer a batch, as `InferenceBackend.answer`."""
        return self._outcome(partial(self._backend.answer, batch))


class Encoder(_Model):
    """The deployment that embeds frames and texts: the towers of an image-text model."""

    def __init__(self) -> None:
        """Load the model, as the settings of this machine say.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: There are fewer GPUs than towers, or no such backend.
        """
        super().__init__()
        settings = load_settings()
        self._towers = self._stack.enter_context(closing(open_towers(settings, towers_card(settings))))
        self._towers.start()
        self._info = self._towers.wait_ready()

    def info(self) -> TowersInfo:
        """Return what the towers report."""
        return self._info

    def embed_frames(self, videos: Sequence[npt.NDArray[np.uint8]]) -> object:
        """Embed frames, as `EmbeddingBackend.embed_frames`."""
        return self._outcome(partial(self._towers.embed_frames, videos))

    def embed_texts(self, texts: Sequence[str]) -> object:
        """Embed texts, as `EmbeddingBackend.embed_texts`."""
        return self._outcome(partial(self._towers.embed_texts, texts))

    def count_tokens(self, texts: Sequence[str]) -> object:
        """Count tokens, as `EmbeddingBackend.count_tokens`."""
        return self._outcome(partial(self._towers.count_tokens, texts))


class RemoteEngine(Lifetime):
    """The replicas of `Engine`, as an `InferenceBackend`; Ray Serve starts and ends them."""

    engines = 1
    times = EngineTimes()

    def __init__(self, handle: Any) -> None:  # noqa: ANN401 - of the deployment
        """Stand for a deployment."""
        self._handle = handle

    def start(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def wait_ready(self) -> EngineInfo:
        """Wait until a replica has loaded the model."""
        info: EngineInfo = call(self._handle.info)
        return info

    def answer(self, batch: Batch) -> list[Reply]:
        """Answer a batch; as `InferenceBackend.answer`, and `call`."""
        replies: list[Reply] = call(self._handle.answer, batch)
        return replies


class RemoteTowers(Lifetime):
    """The replicas of `Encoder`, as an `EmbeddingBackend`; Ray Serve starts and ends them."""

    def __init__(self, handle: Any) -> None:  # noqa: ANN401 - of the deployment
        """Stand for a deployment."""
        self._handle = handle

    def start(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def wait_ready(self) -> TowersInfo:
        """Wait until a replica has loaded the model."""
        info: TowersInfo = call(self._handle.info)
        return info

    def embed_frames(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embed frames; as `EmbeddingBackend.embed_frames`, and `call`."""
        vectors: npt.NDArray[np.float32] = call(self._handle.embed_frames, videos)
        return vectors

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts; as `EmbeddingBackend.embed_texts`, and `call`."""
        vectors: npt.NDArray[np.float32] = call(self._handle.embed_texts, texts)
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens; as `EmbeddingBackend.count_tokens`, and `call`."""
        counted: list[int] = call(self._handle.count_tokens, texts)
        return counted
