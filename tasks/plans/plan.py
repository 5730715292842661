"""Plans: which shards a run has to do, and how far they are. Runs that ask the same share one."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from infra.database.connect import database_errors
from infra.errors import PlanLostError
from sql.queries import read_query
from tasks.database.tables import PLAN, SHARD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from sqlalchemy import Engine

_SHARDS = text(
    "INSERT INTO reelabel.shard (plan_id, shard_index, jobs) "
    "SELECT :plan_id, number - 1, jobs FROM unnest(CAST(:jobs AS integer [])) WITH ORDINALITY AS planned (jobs, number)"
).bindparams(bindparam("jobs"))
_SUMS = text(read_query("plan_sums"))
_UNDONE = ("planned", "extracted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The shards of one selection of jobs, under one spec.

    Attributes:
        run_id: The run that made it.
        manifest_fingerprint: Which version of the manifest.
        kind: `classify` or `backfill`.
        shared: Whether a run that asks the same joins it.
        plan_uri: Folder of its files; see `tasks.manifest.plan_file`.
        shards: How many.
        jobs: Of all its shards.
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
    """How far a plan is: shards by state, and jobs of the shards that are not done.

    Attributes:
        leased: Shards that somebody is working on.
    """

    planned: int
    extracted: int
    done: int
    failed: int
    leased: int
    jobs_left: int

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left to do."""
        return not self.planned + self.extracted


@contextmanager
def planning(engine: Engine, *, dataset: str, spec_id: str) -> Iterator[None]:
    """Plan for a dataset and spec alone; whoever else would plan waits, and then finds what was planned.

    A planner that dies lets the next one in: its plan has no row yet, and does not count.

    Raises:
        DatabaseUnavailableError: Postgres did not answer.
    """
    key = func.hashtextextended(f"plan/{dataset}/{spec_id}", 0)
    # Of the session rather than a transaction, which would keep Postgres from cleaning up while we plan.
    with database_errors(), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(select(func.pg_advisory_lock(key)))
        try:
            yield
        finally:
            with suppress(DBAPIError):  # the lock went with its session, which idles for as long as the planning takes
                connection.execute(select(func.pg_advisory_unlock(key)))


def open_plan(engine: Engine, plan: Plan, shard_jobs: Sequence[int]) -> None:
    """Record a plan whose files stand on the store; from now on its shards can be leased.

    Args:
        engine: The database.
        plan: The plan.
        shard_jobs: How many jobs each of its shards has, in order.

    Raises:
        PlanLostError: Another run has planned the same meanwhile; nothing was recorded.
        DatabaseUnavailableError: Nothing was recorded.
    """
    columns = {column.name: getattr(plan, column.name) for column in PLAN.c if hasattr(plan, column.name)}
    with database_errors(), engine.begin() as connection:
        statement = insert(PLAN).values(columns).on_conflict_do_nothing().returning(PLAN.c.plan_id)
        if connection.execute(statement).first() is None:
            raise PlanLostError(f"Another run has planned {plan.manifest_uri} meanwhile; run again to join it.")
        connection.execute(_SHARDS, {"plan_id": plan.plan_id, "jobs": list(shard_jobs)})


def find_shared_plan(engine: Engine, *, dataset: str, spec_id: str, manifest_fingerprint: str) -> Plan | None:
    """Find the open plan of a run that asks the same; None where there is none."""
    query = _plans().where(
        PLAN.c.dataset == dataset,
        PLAN.c.spec_id == spec_id,
        PLAN.c.manifest_fingerprint == manifest_fingerprint,
        PLAN.c.shared,
    )
    with database_errors(), engine.connect() as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else Plan(**row)


def open_plans(engine: Engine, *, spec_id: str | None = None, run_id: UUID | None = None) -> list[Plan]:
    """List the open plans, the oldest first; of one spec or of all, that one run made or any."""
    query = _plans() if spec_id is None else _plans().where(PLAN.c.spec_id == spec_id)
    query = query if run_id is None else query.where(PLAN.c.run_id == run_id)
    with database_errors(), engine.connect() as connection:
        return [Plan(**row) for row in connection.execute(query.order_by(PLAN.c.created_at)).mappings()]


def state_of(engine: Engine, plan_id: UUID) -> PlanState:
    """Count a plan's shards by state."""
    shards = {state: func.count().filter(SHARD.c.state == state) for state in (*_UNDONE, "done", "failed")}
    query = select(
        *(count.label(state) for state, count in shards.items()),
        func.count().filter(SHARD.c.lease_until > func.clock_timestamp()).label("leased"),
        func.coalesce(func.sum(SHARD.c.jobs).filter(SHARD.c.state != "done"), 0).label("jobs_left"),
    ).where(SHARD.c.plan_id == plan_id)
    with database_errors(), engine.connect() as connection:
        return PlanState(**connection.execute(query).mappings().one())


def done_shards(engine: Engine, plan_id: UUID) -> list[int]:
    """List the shards of a plan that are done, by their indexes."""
    query = select(SHARD.c.shard_index).where(SHARD.c.plan_id == plan_id, SHARD.c.state == "done")
    with database_errors(), engine.connect() as connection:
        return list(connection.execute(query).scalars())


def sums_of(engine: Engine, plan_id: UUID, *, besides: Sequence[int] = ()) -> dict[str, Any]:
    """Add up what the ended shards of a plan came to, but for some, by the names of the run's columns."""
    with database_errors(), engine.connect() as connection:
        return dict(connection.execute(_SUMS, {"plan_id": plan_id, "besides": list(besides)}).mappings().one())


def is_drained(engine: Engine, plan_id: UUID) -> bool:
    """Tell whether nothing is left to do of a plan, by anyone; cheap."""
    left = select(SHARD.c.shard_index).where(SHARD.c.plan_id == plan_id, SHARD.c.state.in_(_UNDONE)).limit(1)
    with database_errors(), engine.connect() as connection:
        return connection.execute(left).first() is None


def count_extracted(engine: Engine, plan_id: UUID) -> int:
    """Count a plan's shards that are extracted and wait for their answers."""
    query = select(func.count()).where(SHARD.c.plan_id == plan_id, SHARD.c.state == "extracted")
    with database_errors(), engine.connect() as connection:
        return connection.execute(query).scalar_one()


def close_plan(engine: Engine, plan_id: UUID, *, state: str) -> bool:
    """Record that a plan is `done` or `dropped`; gives whether this call did.

    Whoever still holds one of its shards has lost the lease.

    Raises:
        DatabaseUnavailableError: Nothing was recorded.
    """
    ended = {"state": state, "ended_at": func.now()}
    open_one = (PLAN.c.plan_id == plan_id) & (PLAN.c.state == "open")
    left = (SHARD.c.plan_id == plan_id) & SHARD.c.state.in_(_UNDONE)
    nobody_s = {"state": "failed", "token": None, "claimed_for": None, "lease_until": None}
    with database_errors(), engine.begin() as connection:
        if not connection.execute(update(PLAN).where(open_one).values(ended)).rowcount:
            return False
        # In the order in which writers lock several, so that no two wait for each other.
        connection.execute(select(SHARD.c.token).where(left).order_by(SHARD.c.token).with_for_update())
        connection.execute(update(SHARD).where(left).values(nobody_s))
    return True


def _plans() -> Any:  # noqa: ANN401 - a select of as many columns as a plan has fields
    return select(*(PLAN.c[name] for name in Plan.__slots__)).where(PLAN.c.state == "open")
