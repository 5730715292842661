"""Status of runs with their rates, and of open plans with their shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Double, case, cast, exists, func, select

from infra.database.connect import database_errors
from tasks.database.tables import PLAN, RUN, SHARD, SPEC
from tasks.results.runs import LOST, run_state

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from sqlalchemy import Engine, Label, Select


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Status of a run.

    Attributes:
        state: `running`, `done`, `failed`, `cancelled`, or `lost` if its process or its heartbeat has ended.
        jobs: Number of jobs to answer.
        ended: Number of these with a label or a failure.
        failed: Number of these with a failure.
        rejected: Number of invalid rows of its manifest, which it left out.
        elapsed_s: Seconds from its start to its end, or to now.
        message: Reason for its end, or a warning.
    """

    run_id: UUID
    kind: str
    dataset: str
    model: str
    spec_id: str
    manifest_uri: str
    started_at: datetime
    state: str
    jobs: int
    ended: int
    failed: int
    rejected: int
    shards_total: int
    shards_done: int
    elapsed_s: float
    message: str

    @property
    def jobs_per_s(self) -> float:
        """Mean rate of jobs that ended."""
        return self.ended / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def remaining_s(self) -> float | None:
        """Estimated seconds for the remaining jobs at this rate; None if unknown."""
        if self.state != "running" or not self.ended:
            return None
        return (self.jobs - self.ended) / self.jobs_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStatus:
    """Status of an open plan: shards by state, and shards under a lease by stage."""

    plan_id: UUID
    dataset: str
    spec_id: str
    planned: int
    extracted: int
    done: int
    failed: int
    extracting: int
    inferring: int

    @property
    def status(self) -> str:
        """Describe what the plan waits for; empty if nothing."""
        if self.planned + self.extracted and not self.extracting + self.inferring:
            return "waiting for a worker: no shard is leased"
        if self.extracted and not self.inferring:
            return f"{self.extracted:,} extracted shards waiting for an engine"
        if self.planned and not self.extracted and not self.extracting:
            return "engine waiting for extraction"
        return ""


def list_runs(engine: Engine, *, limit: int) -> list[RunStatus]:
    """Read the runs in progress, then the latest ended ones, up to `limit` in total."""
    with database_errors(), engine.connect() as connection:
        state = run_state(connection)
        in_progress_first = case((state == "running", 0), else_=1)
        query = _runs(state).order_by(in_progress_first, RUN.c.started_at.desc()).limit(limit)
        return [RunStatus(**row) for row in connection.execute(query).mappings()]


def _runs(state: Label[str]) -> Select[Any]:
    ended_at = func.coalesce(RUN.c.ended_at, case((state == "lost", RUN.c.seen_at), else_=func.now()))
    columns = ("run_id", "kind", "dataset", "spec_id", "manifest_uri", "started_at", "shards_total", "shards_done")
    return select(
        *(RUN.c[name] for name in columns),
        SPEC.c.body["model"]["name"].astext.label("model"),
        state,
        case((state == "lost", LOST), else_=RUN.c.message).label("message"),
        (RUN.c.jobs_total - RUN.c.jobs_skipped).label("jobs"),
        (RUN.c.jobs_labelled + RUN.c.jobs_failed).label("ended"),
        RUN.c.jobs_failed.label("failed"),
        RUN.c.jobs_rejected.label("rejected"),
        cast(func.extract("epoch", ended_at - RUN.c.started_at), Double).label("elapsed_s"),
    ).join(SPEC, SPEC.c.spec_id == RUN.c.spec_id)


def list_unrepaired_runs(engine: Engine, *, within: timedelta) -> list[RunStatus]:
    """Read the failed and lost runs of late, newest first, after which no run of the same manifest has finished."""
    later = RUN.alias("later")
    is_repaired = exists().where(
        later.c.manifest_uri == RUN.c.manifest_uri,
        later.c.dataset == RUN.c.dataset,
        later.c.kind == RUN.c.kind,
        later.c.state == "done",
        later.c.started_at > RUN.c.started_at,
    )
    with database_errors(), engine.connect() as connection:
        state = run_state(connection)
        query = _runs(state).where(state.in_(["failed", "lost"]), RUN.c.started_at > func.now() - within, ~is_repaired)
        rows = connection.execute(query.order_by(RUN.c.started_at.desc())).mappings().all()
    return [RunStatus(**row) for row in rows]


def list_plans(engine: Engine) -> list[PlanStatus]:
    """Read the open plans, oldest first."""
    counts = {
        state: func.count().filter(SHARD.c.state == state) for state in ("planned", "extracted", "done", "failed")
    }
    is_leased = SHARD.c.lease_until > func.now()
    counts["extracting"] = func.count().filter(is_leased & SHARD.c.claimed_for.in_(["extract", "both"]))
    counts["inferring"] = func.count().filter(is_leased & SHARD.c.claimed_for.in_(["infer", "both"]))
    query = (
        select(PLAN.c.plan_id, PLAN.c.dataset, PLAN.c.spec_id, *(count.label(name) for name, count in counts.items()))
        .join(SHARD, SHARD.c.plan_id == PLAN.c.plan_id)
        .where(PLAN.c.state == "open")
        .group_by(PLAN.c.plan_id)
        .order_by(PLAN.c.created_at)
    )
    with database_errors(), engine.connect() as connection:
        return [PlanStatus(**row) for row in connection.execute(query).mappings()]
