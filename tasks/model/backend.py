"""The interface of whatever answers a run's questions: vLLM engines, or a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType

    from tasks.model.protocol import Batch, EngineInfo, EngineTimes, Reply


class InferenceBackend(Protocol):
    """Answers batches of questions: an engine process, several of them, or a server; a context manager."""

    def __enter__(self) -> Self:
        """Start."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        ...

    @property
    def engines(self) -> int:
        """Number of engines that answer in parallel."""
        ...

    @property
    def times(self) -> EngineTimes:
        """How the time since the first load was spent."""
        ...

    def start(self) -> None:
        """Start loading, or reload after a loss; return at once.

        Raises:
            ConfigurationError: The engine is not installed.
        """
        ...

    def wait_ready(self) -> EngineInfo:
        """Wait until questions can be answered.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: The server cannot be reached, or rejects requests.
        """
        ...

    def ask(self, batch: Batch) -> list[Reply]:
        """Answer a batch; replies are in the order of its questions. Thread-safe.

        Raises:
            EngineLostError: The engine was lost so often that the questions cannot be the cause.
            EngineClosedError: The engine was closed meanwhile.
            ServerUnavailableError: The server does not respond.
        """
        ...

    def close(self) -> None:
        """Shut down everything that was started; idempotent."""
        ...
