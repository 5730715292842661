"""An engine that is asked again when it breaks, and the question that breaks it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infra.errors import EngineLostError, InferenceError
from tasks.model.lifetime import Lifetime
from tasks.model.questions import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.model.process import EngineProcess
    from tasks.model.questions import Batch, EngineInfo, EngineTimes, Reply

_DEATHS = 12  # enough to single out one question of a thousand


class RecoveringEngine(Lifetime):
    """Answers, whatever becomes of its engine; a context manager that ends it.

    An engine that is lost takes every batch with it that it was at, and one of them may be the cause. So
    they are asked again one by one, each alone. One that the engine dies on even so is halved until the
    question on which it dies stands by itself; dies it once more, that question is refused.
    """

    def __init__(self, engine: EngineProcess) -> None:
        """Keep the engine; nothing is started yet."""
        self._engine = engine
        self._turn = threading.Condition()
        self._asking = 0
        self._suspects = 0

    @property
    def engines(self) -> int:
        """One."""
        return 1

    @property
    def times(self) -> EngineTimes:
        """What it did with its time, in all its lives."""
        return self._engine.times

    def start(self) -> None:
        """Begin to load the model."""
        self._engine.start()

    def wait_ready(self) -> EngineInfo:
        """Wait until the model is loaded; see `EngineProcess`."""
        return self._engine.wait_ready()

    def close(self) -> None:
        """End the process, for good."""
        self._engine.close()

    def ask(self, batch: Batch) -> list[Reply]:
        """Answer a batch, in its order; safe to call from many threads.

        Raises:
            EngineLostError: The engine dies so often that the questions cannot be the cause.
            EngineClosedError: It was closed meanwhile.
            ModelError: It does not start again.
        """
        try:
            with self._beside_others():
                return self._engine.ask(batch)
        except EngineLostError:
            pass
        with self._alone():
            return self._ask_again(batch, [_DEATHS])

    def _ask_again(self, batch: Batch, deaths_left: list[int]) -> list[Reply]:
        for is_last in (len(batch.questions) > 1, True):
            try:
                self._engine.start()
                return self._engine.ask(batch)
            except EngineLostError as error:
                lost = error
                deaths_left[0] -= 1
                if not deaths_left[0]:
                    raise
            if is_last:
                break
        if len(batch.questions) == 1:
            return [Refusal.of(InferenceError(f"The engine died on this question twice. {lost.message}"))]
        middle = len(batch.questions) // 2
        halves = (batch.questions[:middle], batch.questions[middle:])
        return [reply for half in halves for reply in self._ask_again(batch.only(half), deaths_left)]

    @contextmanager
    def _beside_others(self) -> Iterator[None]:
        with self._turn:
            self._turn.wait_for(lambda: not self._suspects)
            self._asking += 1
        try:
            yield
        finally:
            with self._turn:
                self._asking -= 1
                self._turn.notify_all()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._turn:
            self._suspects += 1
            self._turn.wait_for(lambda: not self._asking)
            self._asking += 1
        try:
            yield
        finally:
            with self._turn:
                self._suspects -= 1
                self._asking -= 1
                self._turn.notify_all()
