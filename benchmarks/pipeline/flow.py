"""Contender: the flow `classify`, timed from the loaded model; its services must be running and prepared."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from benchmarks.cores import Cores, engine_binding
from benchmarks.harness import run_flow, variables
from benchmarks.pipeline.contender import Timing
from benchmarks.pipeline.workload import warm_up_batch
from flows.runs import classify
from infra.database.connect import connected
from infra.errors import NotReconciledError
from tasks.database.tables import RESULT, RUN
from tasks.domain import RunPhase
from tasks.model.engine.process import EngineProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from benchmarks.pipeline.workload import Workload
    from infra.settings import Settings

_UNMEASURED = {RunPhase.SETUP, RunPhase.LOAD, RunPhase.UNLOAD, RunPhase.AUDIT}


@dataclass(slots=True, kw_only=True)
class FlowRun:
    """Runs the real flow in this process.

    Attributes:
        manifest_uri: Manifest with the workload's jobs in the same order.
        cache_uri: Parent of the frame caches, one per pass. A contender that runs later in the same round with the same
            URI finds the cache warm.
    """

    workload: Workload
    settings: Settings
    manifest_uri: str
    cache_uri: str
    name: str
    cores: Cores = field(default_factory=Cores)

    def load(self) -> None:
        """Do nothing: every run loads the model."""

    def run(self, number: int) -> Timing:
        """Run the flow once."""
        engine = self.workload.engine
        # Random weights mean nothing, and are timed all the same.
        model = {"name": engine.model, "dtype": engine.dtype, "min_choice_mass": 0.0}
        settings = self.settings.model_copy(
            update={
                "model": self.settings.model.model_copy(update=model),
                "store": replace(self.settings.store, uri=f"{self.cache_uri}/{number}"),
            }
        )
        parameters = {"manifest": self.manifest_uri, "dataset": f"{self.name} {number}", "force": True}
        with (
            variables(self.cores.engine_variables),
            _engine_ready_first(self.workload, self.cores) as ready_s,
        ):
            run_id = run_flow(classify, parameters, settings)
        return self._timing(settings, run_id, began_s=ready_s[0])

    def close(self) -> None:
        """Do nothing: every run stops its engine."""

    def _timing(self, settings: Settings, run_id: UUID, *, began_s: float) -> Timing:
        of_run = RESULT.c.run_id == run_id
        with connected(settings.database) as engine, engine.connect() as connection:
            rows = connection.execute(select(RESULT.c.job_id, RESULT.c.choice_index).where(of_run))
            labels = {row.job_id: row.choice_index for row in rows}
            # created_at is the start of the transaction, when the shard's last answer had arrived.
            ended_s = connection.execute(select(func.max(RESULT.c.created_at)).where(of_run)).scalar_one().timestamp()
            run = connection.execute(select(RUN).where(RUN.c.run_id == run_id)).mappings().one()
        if len(labels) < len(self.workload.jobs):
            missing = len(self.workload.jobs) - len(labels)
            raise NotReconciledError(f"{missing:,} jobs of the benchmark have no label: {run['message']}")
        return Timing(
            jobs=len(labels),
            began_s=began_s,
            ended_s=ended_s,
            labels=tuple(labels[job.job_id] for job in self.workload.jobs),
            prompt_tokens=run["prompt_tokens"],
        )


def measured_ms(run: Any) -> dict[str, float]:  # noqa: ANN401 - a row of RUN
    """Return the run's wall-clock profile, by part, without what comes before its first and after its last answer."""
    return {part: ms for part, ms in run["wall_ms"].items() if part not in _UNMEASURED}


@contextmanager
def _engine_ready_first(workload: Workload, cores: Cores) -> Iterator[list[float]]:
    """Load, bind and warm up the engine before the flow extracts its first video; yield when it was ready.

    A run extracts while its model loads, which would distort the rate of a short run.
    """
    ready_s: list[float] = []
    bindings = ExitStack()
    start, warm_up = EngineProcess.start, warm_up_batch(workload)

    def load(self: EngineProcess) -> None:
        start(self)
        assert self.pid is not None
        bindings.enter_context(engine_binding(self.pid, cores))
        self.answer(warm_up)
        ready_s.append(time.time())

    EngineProcess.start = load  # type: ignore[assignment, method-assign]
    try:
        with bindings:
            yield ready_s
    finally:
        EngineProcess.start = start  # type: ignore[method-assign]
