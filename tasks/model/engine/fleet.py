"""Several engines in parallel, behind the interface of one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infra.errors import ModelError
from tasks.model.protocol import EngineTimes, Lifetime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.model.backend import InferenceBackend
    from tasks.model.protocol import Batch, EngineInfo, Reply


@dataclass(slots=True, eq=False)
class _Member:
    """One engine.

    Attributes:
        batches: Batches in flight.
        fault: Why it is no longer used.
    """

    engine: InferenceBackend
    batches: int = 0
    fault: ModelError | None = None


class EngineFleet(Lifetime):
    """Engines of one model, each in its own process; a context manager that shuts them all down.

    Each batch goes whole to the least busy engine. A lost engine recovers while the others continue; one
    that fails to reload is no longer used.
    """

    def __init__(self, engines: Sequence[InferenceBackend]) -> None:
        """Store the engines; none is started yet."""
        self._members = [_Member(engine) for engine in engines]
        self._lock = threading.Lock()

    @property
    def engines(self) -> int:
        """Number of engines that answer in parallel."""
        return sum(member.engine.engines for member in self._members)

    @property
    def times(self) -> EngineTimes:
        """How the engines spent their time, summed."""
        return sum((member.engine.times for member in self._members), EngineTimes())

    def start(self) -> None:
        """Start loading all engines.

        Raises:
            ConfigurationError: vLLM is not installed.
        """
        for member in self._members:
            member.engine.start()

    def wait_ready(self) -> EngineInfo:
        """Wait until all engines are loaded, and describe them as one.

        Raises:
            ModelError: The model cannot be loaded, or not within the timeout.
        """
        infos = [member.engine.wait_ready() for member in self._members]
        return replace(
            infos[0],
            gpus=sum(info.gpus for info in infos),
            max_model_len=min(info.max_model_len for info in infos),
            start_ms=max(info.start_ms for info in infos),
        )

    def answer(self, batch: Batch) -> list[Reply]:
        """Send a batch to the least busy engine; replies are in the order of its questions. Thread-safe.

        Raises:
            ModelError: No engine can be loaded any more.
            EngineLostError: An engine died so often that the questions cannot be the cause.
        """
        while True:
            member = self._take_least_busy()
            try:
                return member.engine.answer(batch)
            except ModelError as error:
                member.fault = error
            finally:
                with self._lock:
                    member.batches -= 1

    def close(self) -> None:
        """End all engine processes; idempotent."""
        for member in self._members:
            member.engine.close()

    def _take_least_busy(self) -> _Member:
        with self._lock:
            usable = [member for member in self._members if member.fault is None]
            if not usable:
                raise next(member.fault for member in self._members if member.fault)
            member = min(usable, key=lambda one: one.batches)
            member.batches += 1
            return member
