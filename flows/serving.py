"""Which plans a flow of one stage serves, and for how long."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING
from uuid import UUID

from prefect import get_run_logger

from flows.patience import patiently
from flows.taking import ShardSource
from infra.database import connect
from infra.errors import ConfigurationError
from tasks.plans.plan import Plan, is_drained, open_plans
from tasks.results.runs import read_spec
from tasks.results.schema import check_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from infra.objects import ObjectStore
    from infra.settings import Settings
    from tasks.domain import RunSpec
    from tasks.plans.keeper import LeaseKeeper
    from tasks.plans.lease import Work

PLANS_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Which plans a flow serves, and for how long.

    Attributes:
        plan_id: The only one; None serves every open plan.
        idle_s: Seconds without a shard, after which it ends.
    """

    plan_id: UUID | None
    idle_s: float
    database: Engine
    _passed_over: set[UUID] = field(default_factory=set, init=False, repr=False, compare=False)

    @classmethod
    @contextmanager
    def opened(cls, settings: Settings, *, plan: str | None, idle_s: float | None) -> Iterator[Serving]:
        """Open the database for a flow.

        Raises:
            ConfigurationError: The plan's id is none; or the database is of another version.
        """
        try:
            plan_id = UUID(plan) if plan else None
        except ValueError:
            raise ConfigurationError(f"{plan!r} is no plan's id; leave it empty to serve every open plan.") from None
        database = connect(settings.database)
        try:
            check_schema(database)
            yield cls(
                plan_id=plan_id, idle_s=settings.run.idle_timeout_s if idle_s is None else idle_s, database=database
            )
        finally:
            database.dispose()

    def source(
        self,
        work: Work,
        *,
        keeper: LeaseKeeper,
        objects: ObjectStore,
        most_waiting: int | None = None,
    ) -> ShardSource:
        """Make what takes the shards of the plans that are served."""
        return ShardSource(
            keeper=keeper,
            objects=objects,
            database=self.database,
            work=work,
            plans=self.plans,
            has_ended=self.has_ended,
            most_waiting=most_waiting,
            outlives_plans=self.plan_id is None,
        )

    def plans(self) -> list[Plan]:
        """List the open plans among them, the oldest first; where all are served, those that can be asked here."""
        plans = open_plans(self.database)
        if self.plan_id is None:
            return [plan for plan in plans if self._is_readable(plan)]
        return [plan for plan in plans if plan.plan_id == self.plan_id]

    def has_ended(self, idle_s: float) -> bool:
        """Whether its plan is drained, or there was nothing to do for long enough."""
        is_over = self.plan_id is not None and is_drained(self.database, self.plan_id)
        return is_over or idle_s >= self.idle_s

    def spec_of(self, plan: Plan) -> RunSpec:
        """Read how a plan is asked."""
        return patiently(partial(_read_spec, self.database, plan.spec_id))

    def _is_readable(self, plan: Plan) -> bool:
        try:
            self.spec_of(plan)
        except ConfigurationError as error:
            if plan.plan_id not in self._passed_over:
                self._passed_over.add(plan.plan_id)
                get_run_logger().warning("Plan %s is left to others: %s", plan.plan_id, error.message)
            return False
        return True


@lru_cache(PLANS_KEPT)
def _read_spec(database: Engine, spec_id: str) -> RunSpec:
    return read_spec(database, spec_id)
