"""Plans: the shards of a run and their states. Runs with the same manifest and spec share a plan."""

from __future__ import annotations

import shlex
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import bindparam, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from infra.database.connect import database_errors, unlimited
from infra.errors import PlanLostError
from sql.queries import read_query
from tasks.database.tables import PLAN, SHARD
from tasks.plans.lease import Work
from tasks.results.runs import lock_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from sqlalchemy import Engine

    from tasks.database.scope import Scope

_SHARDS = text(
    "INSERT INTO reelabel.shard (plan_id, shard_index, jobs) "
    "SELECT :plan_id, number - 1, jobs FROM unnest(CAST(:jobs AS integer [])) WITH ORDINALITY AS planned (jobs, number)"
).bindparams(bindparam("jobs"))
_SUMS = text(read_query("plan_sums"))
_NOTHING = text("SELECT")
_UNLIMITED = text(unlimited())
_UNDONE = ("planned", "extracted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A selection of jobs under one spec, in shards.

    Attributes:
        run_id: The run that created the plan.
        kind: Kind of that run, such as `classify`.
        shared: Whether runs with the same manifest and spec join the plan.
        plan_uri: Folder of its files; see `tasks.manifest.plan_file`.
    """

    plan_id: UUID
    run_id: UUID
    dataset: str
    spec_id: str
    manifest_uri: str
    manifest_fingerprint: str
    kind: str
    shared: bool
    plan_uri: str
    shards: int
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """Number of a plan's shards by state, and of the jobs in shards that are not done.

    Attributes:
        extracting: Shards leased for extraction.
        inferring: Shards leased for inference.
        leased: Shards leased for anything.
    """

    planned: int
    extracted: int
    done: int
    failed: int
    extracting: int
    inferring: int
    leased: int
    jobs_left: int

    @property
    def is_drained(self) -> bool:
        return not self.planned + self.extracted

    @property
    def idle_stages(self) -> list[Work]:
        """The stages that have shards to work on, but no worker with a lease.

        An infer worker may be waiting for the first shard to be extracted, unless no worker extracts either.
        """
        no_extract = self.planned and not self.extracted and not self.extracting
        no_infer = not self.inferring and (self.extracted or (self.planned and not self.extracting and not self.done))
        return [stage for stage, is_idle in ((Work.EXTRACT, no_extract), (Work.INFER, no_infer)) if is_idle]

    @property
    def status(self) -> str:
        """What the plan waits for; empty if nothing."""
        if self.planned + self.extracted and not self.leased:
            return "waiting for a worker: no shard is leased"
        if self.extracted and not self.inferring:
            return f"{self.extracted:,} extracted shards waiting for an engine"
        if self.planned and not self.extracted and not self.extracting:
            return "engine waiting for extraction"
        return ""


def no_worker_message(stage: str, *, model: str | None = None) -> str:
    """Return how to start a worker, without a full stop; `model` is that of the run if the settings have another."""
    start = shlex.join(["reelabel", "worker", stage, *(["--model", model] if model and stage == "infer" else [])])
    loading = ", unless one is loading its model" if stage == "infer" else ""
    return f"No {stage} worker has a shard: start one by `{start}`{loading}"


@contextmanager
def planning_lock(engine: Engine, scope: Scope) -> Iterator[None]:
    """Hold the lock for planning a dataset and spec; other planners wait, and then find the plan.

    Meanwhile, the dataset can be neither archived nor restored. If a planner dies, the lock is released, and the files
    of its plan are ignored, since the plan has no row yet.
    """
    key = func.hashtextextended(f"plan/{scope.dataset}/{scope.spec_id}", 0)
    # A lock of the transaction, since a pooler may lend a session to others after each. The query after the lock ends
    # the lock's snapshot, which would keep Postgres from vacuuming.
    with database_errors(), engine.connect() as connection:
        connection.execute(_UNLIMITED)
        connection.execute(select(func.pg_advisory_xact_lock(key)))
        lock_dataset(connection, scope.dataset)
        connection.execute(_NOTHING)
        try:
            yield
        finally:
            with suppress(DBAPIError):  # the session, and with it the lock, may have been lost
                connection.rollback()


def open_plan(engine: Engine, plan: Plan, shard_jobs: Sequence[int]) -> None:
    """Record a plan whose files are on the store, so that its shards can be leased.

    Raises:
        PlanLostError: Another run has recorded a plan for the same jobs; nothing was recorded.
    """
    columns = {column.name: getattr(plan, column.name) for column in PLAN.c if hasattr(plan, column.name)}
    with database_errors(), engine.begin() as connection:
        statement = insert(PLAN).values(columns).on_conflict_do_nothing().returning(PLAN.c.plan_id)
        if connection.execute(statement).first() is None:
            raise PlanLostError(f"Another run has just planned {plan.manifest_uri}; run again to join its plan.")
        connection.execute(_SHARDS, {"plan_id": plan.plan_id, "jobs": list(shard_jobs)})


def find_shared_plan(engine: Engine, scope: Scope, *, manifest_fingerprint: str) -> Plan | None:
    """Find the open plan that runs of a version of a manifest under a spec share; None if there is none."""
    query = _plans().where(scope.matches(PLAN), PLAN.c.manifest_fingerprint == manifest_fingerprint, PLAN.c.shared)
    with database_errors(), engine.connect() as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else Plan(**row)


def open_plans(engine: Engine, *, run_id: UUID | None = None) -> list[Plan]:
    """List the open plans, or those that a run created, oldest first."""
    query = _plans() if run_id is None else _plans().where(PLAN.c.run_id == run_id)
    with database_errors(), engine.connect() as connection:
        return [Plan(**row) for row in connection.execute(query.order_by(PLAN.c.created_at)).mappings()]


def plan_dataset(engine: Engine, plan_id: UUID) -> str | None:
    with database_errors(), engine.connect() as connection:
        return connection.execute(select(PLAN.c.dataset).where(PLAN.c.plan_id == plan_id)).scalar_one_or_none()


def plan_state(engine: Engine, plan_id: UUID) -> PlanState:
    """Count a plan's shards by state."""
    shards = {state: func.count().filter(SHARD.c.state == state) for state in (*_UNDONE, "done", "failed")}
    is_leased = SHARD.c.lease_until > func.clock_timestamp()
    query = select(
        *(count.label(state) for state, count in shards.items()),
        func.count().filter(is_leased, SHARD.c.claimed_for != Work.INFER).label("extracting"),
        func.count().filter(is_leased, SHARD.c.claimed_for != Work.EXTRACT).label("inferring"),
        func.count().filter(is_leased).label("leased"),
        func.coalesce(func.sum(SHARD.c.jobs).filter(SHARD.c.state != "done"), 0).label("jobs_left"),
    ).where(SHARD.c.plan_id == plan_id)
    with database_errors(), engine.connect() as connection:
        return PlanState(**connection.execute(query).mappings().one())


def done_shards(engine: Engine, plan_id: UUID) -> list[int]:
    query = select(SHARD.c.shard_index).where(SHARD.c.plan_id == plan_id, SHARD.c.state == "done")
    with database_errors(), engine.connect() as connection:
        return list(connection.execute(query).scalars())


class ShardSums(NamedTuple):
    """The summed tallies of shards, and the numbers of engines that answered them and of their GPUs."""

    tally: dict[str, float]
    engines: int
    gpus: int


def sum_shard_reports(engine: Engine, plan_id: UUID, *, excluded: Sequence[int] = ()) -> ShardSums:
    """Sum the reports of a plan's done shards, except those in `excluded`."""
    parameters = {"plan_id": plan_id, "excluded": list(excluded)}
    with database_errors(), engine.connect() as connection:
        return ShardSums(*connection.execute(_SUMS, parameters).one())


def is_drained(engine: Engine, plan_id: UUID) -> bool:
    """Whether no shard of a plan is left to process; cheaper than `plan_state`."""
    left = select(SHARD.c.shard_index).where(SHARD.c.plan_id == plan_id, SHARD.c.state.in_(_UNDONE)).limit(1)
    with database_errors(), engine.connect() as connection:
        return connection.execute(left).first() is None


def count_extracted(engine: Engine, plan_id: UUID) -> int:
    query = select(func.count()).where(SHARD.c.plan_id == plan_id, SHARD.c.state == "extracted")
    with database_errors(), engine.connect() as connection:
        return connection.execute(query).scalar_one()


def close_plan(engine: Engine, plan_id: UUID, *, state: str) -> bool:
    """Set a plan's state to `done` or `dropped`, and revoke the leases of its unfinished shards.

    Returns:
        Whether the plan was open.
    """
    ended = {"state": state, "ended_at": func.now()}
    is_open = (PLAN.c.plan_id == plan_id) & (PLAN.c.state == "open")
    unfinished = (SHARD.c.plan_id == plan_id) & SHARD.c.state.in_(_UNDONE)
    revoked = {"state": "failed", "token": None, "claimed_for": None, "lease_until": None}
    with database_errors(), engine.begin() as connection:
        if not connection.execute(update(PLAN).where(is_open).values(ended)).rowcount:
            return False
        # Lock in token order, as writers of several shards do, to avoid deadlocks.
        connection.execute(select(SHARD.c.token).where(unfinished).order_by(SHARD.c.token).with_for_update())
        connection.execute(update(SHARD).where(unfinished).values(revoked))
    return True


def _plans() -> Any:  # noqa: ANN401 - a select of one column for each field of a plan
    return select(*(PLAN.c[name] for name in Plan.__slots__)).where(PLAN.c.state == "open")
