"""What a run needs of whatever answers its questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType

    from tasks.model.questions import Batch, EngineInfo, EngineTimes, Reply


class Asker(Protocol):
    """Answers batches: an engine's process, several of them, or a server; a context manager that ends it."""

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
        """How many engines answer side by side."""
        ...

    @property
    def times(self) -> EngineTimes:
        """What was done with the time since it was first loaded."""
        ...

    def start(self) -> None:
        """Begin to load, or load again what was lost; returns at once.

        Raises:
            ConfigurationError: What answers is not installed.
        """
        ...

    def wait_ready(self) -> EngineInfo:
        """Wait until questions can be answered.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: A server is not there, or refuses.
        """
        ...

    def ask(self, batch: Batch) -> list[Reply]:
        """Answer a batch, in its order; several threads may ask at once.

        Raises:
            EngineLostError: What answers is lost so often that the questions cannot be the cause.
            EngineClosedError: It was closed meanwhile.
            ServerUnavailableError: A server does not answer.
        """
        ...

    def close(self) -> None:
        """End whatever was started; safe to call again."""
        ...
