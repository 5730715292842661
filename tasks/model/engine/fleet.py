"""Several engines in parallel, behind the interface of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reelabel_engine.protocol import EngineTimes
from tasks.model.backend import InferenceBackend
from tasks.model.fleet import Fleet

if TYPE_CHECKING:
    from reelabel_engine.protocol import Batch, EngineInfo
    from tasks.model.backend import Reply


class EngineFleet(Fleet[InferenceBackend]):
    """Engines of one model, each in its own process. A lost engine recovers while the others continue."""

    @property
    def engines(self) -> int:
        return sum(member.engines for member in self._members)

    @property
    def times(self) -> EngineTimes:
        return sum((member.times for member in self._members), EngineTimes())

    def wait_ready(self) -> EngineInfo:
        infos = [member.wait_ready() for member in self._members]
        return replace(
            infos[0],
            gpus=sum(info.gpus for info in infos),
            max_model_len=min(info.max_model_len for info in infos),
            start_ms=max(info.start_ms for info in infos),
        )

    def answer(self, batch: Batch) -> list[Reply]:
        return self._ask(lambda engine: engine.answer(batch))
