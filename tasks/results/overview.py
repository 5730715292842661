"""Status of runs with their rates, and the pace of past runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Double, case, cast, exists, func, select

from infra.database.connect import database_errors
from tasks.database.tables import RUN, SPEC
from tasks.domain import RunPhase
from tasks.results.runs import LOST, run_state

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from sqlalchemy import Engine, Label, Select

    from tasks.database.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Status of a run.

    Attributes:
        state: `running`, `done`, `failed`, `cancelled`, or `lost` if its process or its heartbeat has ended.
        ended: Number of jobs with a label, a description or a failure.
        failed: Number of jobs with a failure.
        rejected: Number of invalid rows of the manifest, which were left out.
        elapsed_s: Seconds from the start to the end, or to now.
        message: Reason for the state, or a warning.
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
        return self.ended / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def remaining_s(self) -> float | None:
        """Seconds that the remaining jobs take at this rate; None if unknown."""
        if self.state != "running" or not self.jobs_per_s:
            return None
        return (self.jobs - self.ended) / self.jobs_per_s


def list_runs(engine: Engine, *, limit: int) -> list[RunStatus]:
    """Read the runs in progress, then the latest of the others, up to `limit` in total."""
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
    """Read the recent failed and lost runs, newest first, after which no run of the same manifest has finished."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Speed of past runs of a dataset under a spec.

    Attributes:
        jobs: Number of jobs that ended; 0 without any run.
        jobs_per_s: Mean rate while the engine was loaded.
        start_s: Mean seconds to load the engine.
        cost: Mean cost of a job; None if no run had prices.
    """

    jobs: int
    jobs_per_s: float
    start_s: float
    cost: float | None

    def duration_s(self, jobs: int) -> float:
        """Estimate the seconds of a run of some jobs, including the start of the engine."""
        return self.start_s + jobs / self.jobs_per_s


def past_pace(engine: Engine, scope: Scope, *, host: str | None) -> Pace:
    """Measure the past runs of a dataset under a spec, on one host, or on any if it is None."""
    jobs_ended = RUN.c.jobs_labelled + RUN.c.jobs_failed
    start_ms = cast(RUN.c.wall_ms[RunPhase.LOAD.value].astext, Double)
    query = select(
        cast(func.coalesce(func.sum(jobs_ended), 0), BigInteger),
        func.coalesce(func.sum(jobs_ended / RUN.c.jobs_per_s), 0.0),
        func.coalesce(func.avg(start_ms), 0.0),
        func.sum(RUN.c.cost) / func.sum(case((RUN.c.cost.is_not(None), jobs_ended))),
    ).where(scope.matches(RUN), RUN.c.jobs_per_s > 0)
    if host is not None:
        query = query.where(RUN.c.host == host)
    with database_errors(), engine.connect() as connection:
        jobs, seconds, start_ms, cost = connection.execute(query).one()
    jobs_per_s = int(jobs) / float(seconds) if seconds else 0.0
    return Pace(jobs=int(jobs), jobs_per_s=jobs_per_s, start_s=float(start_ms) / 1e3, cost=cost)
