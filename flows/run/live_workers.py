"""Tell, while a run waits for its workers, which are alive, and what to do if a stage has none."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefect import get_run_logger

from flows.run.workers_needed import absence, describe_workers, missing_stages
from flows.shard.retry import retry_outage
from infra.logs import IS_OUTAGE
from tasks.plans.worker import live_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from sqlalchemy import Engine

    from tasks.domain import ModelIdentity
    from tasks.plans.lease import Work
    from tasks.plans.plan import PlanState

# Longer than a worker takes to start, which imports Prefect, and well within half a minute.
PATIENCE_S = 20.0


@dataclass(slots=True, kw_only=True)
class Roster:
    """The workers of a plan, told whenever they change, and whenever a stage has had none for a while.

    Attributes:
        needed: The model of the plan.
        model: The model to name in commands; None is that of the settings.
        waiting: By stage, describes flow runs that were started for it and do not run yet; empty if there are none.
        patience_s: Seconds without a worker before this is told, and told again.
    """

    plan_id: UUID
    needed: ModelIdentity
    model: str | None
    database: Engine
    waiting: Mapping[Work, Callable[[], str]]
    patience_s: float = PATIENCE_S
    _told: str = ""
    _missing_since_s: dict[Work, float] = field(default_factory=dict)

    def look(self, state: PlanState) -> None:
        """Log what has changed since the last look."""
        listed = retry_outage(live_workers, self.database)
        workers = [each for each in listed if each.serves(self.plan_id, self.needed)]
        described = describe_workers(workers)
        if described != self._told and (workers or self._told):
            get_run_logger().info("Alive: %s.", described, extra={IS_OUTAGE: True})
            self._told = described
        missing = missing_stages(workers, planned=state.planned, extracted=state.extracted)
        now_s = time.monotonic()
        self._missing_since_s = {stage: self._missing_since_s.get(stage, now_s) for stage in missing}
        for stage, since_s in self._missing_since_s.items():
            if now_s - since_s >= self.patience_s:
                self._missing_since_s[stage] = now_s
                parts = (absence(stage, model=self.model), self.waiting[stage]())
                get_run_logger().warning("%s.", "; ".join(filter(None, parts)), extra={IS_OUTAGE: True})
