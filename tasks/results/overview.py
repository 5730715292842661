"""How things stand: runs with their rates, and open plans with their shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Double, case, cast, func, select

from infra.database.connect import database_errors
from tasks.database.tables import PLAN, RUN, SHARD
from tasks.results.runs import RUN_STATE

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run.

    Attributes:
        state: `running`, `done`, `failed`, `cancelled`, or `lost` where it gives no sign of life.
        asked: Jobs that it has to ask.
        ended: Those of them that have ended.
        failed: Those of them that ended as a failure.
        spent_s: Seconds since its start, or up to its end.
        message: How it ended, or what it warned of.
    """

    run_id: UUID
    kind: str
    dataset: str
    state: str
    asked: int
    ended: int
    failed: int
    shards_total: int
    shards_done: int
    spent_s: float
    message: str

    @property
    def jobs_per_s(self) -> float:
        """Jobs that ended in a second, on the whole."""
        return self.ended / self.spent_s if self.spent_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest will take at this rate; None where there is no telling."""
        if self.state != "running" or not self.ended:
            return None
        return (self.asked - self.ended) / self.jobs_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStatus:
    """One open plan: its shards by state, and how many of them are held for which work."""

    plan_id: UUID
    dataset: str
    planned: int
    extracted: int
    done: int
    failed: int
    extracting: int
    answering: int

    @property
    def waits(self) -> str:
        """Say what waits for what; empty where nothing does."""
        if self.planned + self.extracted and not self.extracting + self.answering:
            return "waits for a worker: no shard is being worked on"
        if self.extracted and not self.answering:
            return f"{self.extracted:,} extracted shards wait for an engine"
        if self.planned and not self.extracted and not self.extracting:
            return "the engine waits for extraction"
        return ""


def list_runs(engine: Engine, *, limit: int) -> list[RunStatus]:
    """Read the runs that are running, then the latest that have ended; `limit` in all."""
    spent = cast(func.extract("epoch", func.coalesce(RUN.c.ended_at, func.now()) - RUN.c.started_at), Double)
    columns = [RUN.c[name] for name in ("run_id", "kind", "dataset", "shards_total", "shards_done", "message")]
    query = select(
        *columns,
        RUN_STATE,
        (RUN.c.jobs_total - RUN.c.jobs_skipped).label("asked"),
        (RUN.c.jobs_labelled + RUN.c.jobs_failed).label("ended"),
        RUN.c.jobs_failed.label("failed"),
        spent.label("spent_s"),
    )
    query = query.order_by(case((RUN_STATE == "running", 0), else_=1), RUN.c.started_at.desc()).limit(limit)
    with database_errors(), engine.connect() as connection:
        rows = connection.execute(query).mappings().all()
    return [RunStatus(**row) for row in rows]


def list_plans(engine: Engine) -> list[PlanStatus]:
    """Read the open plans, the oldest first."""
    counts = {
        state: func.count().filter(SHARD.c.state == state) for state in ("planned", "extracted", "done", "failed")
    }
    held = SHARD.c.lease_until > func.now()
    counts["extracting"] = func.count().filter(held & SHARD.c.claimed_for.in_(["extract", "both"]))
    counts["answering"] = func.count().filter(held & SHARD.c.claimed_for.in_(["infer", "both"]))
    query = (
        select(PLAN.c.plan_id, PLAN.c.dataset, *(count.label(name) for name, count in counts.items()))
        .join(SHARD, SHARD.c.plan_id == PLAN.c.plan_id)
        .where(PLAN.c.state == "open")
        .group_by(PLAN.c.plan_id)
        .order_by(PLAN.c.created_at)
    )
    with database_errors(), engine.connect() as connection:
        return [PlanStatus(**row) for row in connection.execute(query).mappings()]
