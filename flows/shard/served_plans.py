"""The plans that an extract or infer flow serves, and for how long."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID

from prefect import get_run_logger

from flows.shard.queue import ShardQueue
from flows.shard.retry import retry_outage
from infra.database.connect import connected
from reelabel.errors import ConfigurationError
from tasks.database.schema import check_schema
from tasks.plans.plan import Plan, is_drained, open_plans
from tasks.results.runs import describes, read_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from infra.settings import Settings
    from reelabel.seal import Seal
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import RunSpec
    from tasks.plans.lease import LeaseKeeper, Work

CACHED_PLANS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPlans:
    """The plans that a flow serves, and for how long.

    Attributes:
        plan_id: The only plan; None serves every open plan.
        idle_timeout_s: Seconds without a shard before the flow ends.
    """

    plan_id: UUID | None
    idle_timeout_s: float
    database: Engine
    _skipped: set[UUID] = field(default_factory=set, init=False, repr=False, compare=False)

    @classmethod
    @contextmanager
    def open(cls, settings: Settings, *, plan: str | None, idle_timeout_s: float | None) -> Iterator[ServedPlans]:
        """Open the database for a flow.

        Raises:
            ConfigurationError: The plan's id is malformed, or the database has another version.
        """
        try:
            plan_id = UUID(plan) if plan else None
        except ValueError:
            raise ConfigurationError(f"{plan!r} is not a plan id; leave it out to serve every open plan.") from None
        with connected(settings.database) as database:
            check_schema(database)
            limit_s = settings.run.idle_timeout_s if idle_timeout_s is None else idle_timeout_s
            yield cls(plan_id=plan_id, idle_timeout_s=limit_s, database=database)

    def queue(
        self,
        work: Work,
        *,
        keeper: LeaseKeeper,
        objects: ObjectStore,
        seal: Seal,
        max_pending: int | None = None,
    ) -> ShardQueue:
        """Return a queue of the shards of the served plans."""
        return ShardQueue(
            keeper=keeper,
            objects=objects,
            seal=seal,
            database=self.database,
            work=work,
            plans=self.plans,
            has_ended=self.has_ended,
            max_pending=max_pending,
            skip_lost_plans=self.plan_id is None,
        )

    def plans(self) -> list[Plan]:
        """List the open plans to serve, oldest first; skip those whose spec this version cannot read."""
        plans = open_plans(self.database)
        if self.plan_id is None:
            return [plan for plan in plans if self._is_readable(plan)]
        return [plan for plan in plans if plan.plan_id == self.plan_id]

    def has_ended(self, idle_timeout_s: float) -> bool:
        """Return whether its plan is drained, or the idle timeout has passed."""
        is_over = self.plan_id is not None and is_drained(self.database, self.plan_id)
        return is_over or idle_timeout_s >= self.idle_timeout_s

    def spec_of(self, plan: Plan) -> RunSpec:
        """Return the spec of a plan."""
        return retry_outage(_read_spec, self.database, plan.spec_id)

    def _is_readable(self, plan: Plan) -> bool:
        if plan.kind == "describe" or retry_outage(describes, self.database, plan.spec_id):
            return False  # its run describes its videos itself
        try:
            self.spec_of(plan)
        except ConfigurationError as error:
            if plan.plan_id not in self._skipped:
                self._skipped.add(plan.plan_id)
                get_run_logger().warning("Skipping plan %s: %s", plan.plan_id, error.message)
            return False
        return True


@lru_cache(CACHED_PLANS)
def _read_spec(database: Engine, spec_id: str) -> RunSpec:
    return read_spec(database, spec_id)
