"""Several engines side by side, seen from the flow as one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infra.errors import ModelError
from tasks.model.lifetime import Lifetime
from tasks.model.questions import EngineTimes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.model.asker import Asker
    from tasks.model.questions import Batch, EngineInfo, Reply


@dataclass(slots=True, eq=False)
class _Member:
    """One engine.

    Attributes:
        batches: How many it is answering.
        fault: Why it is not asked any more.
    """

    engine: Asker
    batches: int = 0
    fault: ModelError | None = None


class EngineFleet(Lifetime):
    """Engines of one model, each in a process of its own; a context manager that ends them all.

    A batch goes whole to the engine that answers the fewest. Each recovers by itself, and the others go on
    meanwhile; should one not load again, they go on without it.
    """

    def __init__(self, engines: Sequence[Asker]) -> None:
        """Keep the engines; none is started yet."""
        self._members = [_Member(engine) for engine in engines]
        self._lock = threading.Lock()

    @property
    def engines(self) -> int:
        """How many engines stand side by side."""
        return sum(member.engine.engines for member in self._members)

    @property
    def times(self) -> EngineTimes:
        """What they did with their time, added up."""
        return sum((member.engine.times for member in self._members), EngineTimes())

    def start(self) -> None:
        """Begin to load all of them.

        Raises:
            ConfigurationError: No vLLM is installed.
        """
        for member in self._members:
            member.engine.start()

    def wait_ready(self) -> EngineInfo:
        """Wait until all are loaded, and describe them as one.

        Raises:
            ModelError: The model cannot be loaded, or not within the time allowed.
        """
        infos = [member.engine.wait_ready() for member in self._members]
        return replace(
            infos[0],
            gpus=sum(info.gpus for info in infos),
            max_model_len=min(info.max_model_len for info in infos),
            start_ms=max(info.start_ms for info in infos),
        )

    def ask(self, batch: Batch) -> list[Reply]:
        """Have the least busy engine answer a batch, in its order; several threads may ask at once.

        Raises:
            ModelError: No engine is left that loads.
            EngineLostError: One dies so often that the questions cannot be the cause.
        """
        while True:
            member = self._take()
            try:
                return member.engine.ask(batch)
            except ModelError as error:
                member.fault = error
            finally:
                with self._lock:
                    member.batches -= 1

    def close(self) -> None:
        """End every process; safe to call again."""
        for member in self._members:
            member.engine.close()

    def _take(self) -> _Member:
        with self._lock:
            able = [member for member in self._members if member.fault is None]
            if not able:
                raise next(member.fault for member in self._members if member.fault)
            member = min(able, key=lambda one: one.batches)
            member.batches += 1
            return member
