"""A queue of shards: leases them one after another, from the plans that a flow serves, and releases failed ones."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from prefect import get_run_logger

from flows.shard.retry import retry_faults, retry_outage
from infra.database.connect import connected
from infra.errors import LeaseLostError, PlanLostError
from infra.logs import log_fields, logged
from infra.processes import own_process
from reelabel.errors import ConfigurationError, DiskFullError, TransientError
from tasks.database.schema import check_schema
from tasks.manifest.plan_file import read_shard
from tasks.plans.lease import LeaseKeeper, Work, finish_alone, holder_name
from tasks.plans.plan import Plan, close_plan, count_extracted, is_drained, open_plans
from tasks.results.runs import describes, read_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine

    from infra.settings import Settings
    from reelabel.seal import Seal
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import RunSpec, Shard
    from tasks.plans.lease import Lease

    Result = TypeVar("Result")

MAX_ATTEMPTS = 5
_MAX_FAILURES_IN_ROW = MAX_ATTEMPTS + 1  # more failures than one shard can cause alone
_POLL_S = 0.5
_IDLE_TIMEOUT_S = 300.0  # unless a flow is given another: longer than a planner takes between two plans


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedShard:
    plan: Plan
    lease: Lease
    shard: Shard = field(repr=False)


def shard_logged(plan: Plan, lease: Lease, stage: str | None) -> AbstractContextManager[None]:
    """Add a shard and its stage to the log lines of the body; None is both stages.

    Its run is that of the context, or else the one that made its plan.
    """
    run_id = log_fields().get("run", plan.run_id)
    return logged(run=run_id, plan=plan.plan_id, shard=lease.shard_index, stage=stage)


@dataclass(slots=True, kw_only=True)
class ShardQueue:
    """Shards of one or more plans, leased on demand.

    Attributes:
        seal: Verifies the plans' files.
        work: The stages for which shards are leased.
        plans: Returns the plans; called again whenever none of them has a shard to lease.
        has_ended: Whether to stop, given the seconds since the last lease; called at the same times.
        is_over_budget: Whether to lease no further shard; called before each.
        max_pending: Pause while this many extracted shards of a plan wait for an engine; None never pauses.
        skip_lost_plans: Continue with other plans if a plan's files are gone or were altered.
    """

    keeper: LeaseKeeper
    objects: ObjectStore
    seal: Seal
    database: Engine
    work: Work
    plans: Callable[[], Sequence[Plan]]
    has_ended: Callable[[float], bool]
    is_over_budget: Callable[[], bool] = bool
    max_pending: int | None = None
    skip_lost_plans: bool = False
    _failures_in_row: int = 0
    _is_paused: bool = False

    @classmethod
    @contextmanager
    def of_plan(
        cls,
        plan: Plan,
        settings: Settings,
        database: Engine,
        objects: ObjectStore,
        *,
        is_over_budget: Callable[[], bool],
    ) -> Iterator[ShardQueue]:
        """Yield the queue of one plan, for both stages, which ends once the plan is drained."""
        with _lease_keeper(database, settings) as keeper:
            yield cls(
                keeper=keeper,
                objects=objects,
                seal=settings.store.seal,
                database=database,
                work=Work.BOTH,
                plans=lambda: [plan],
                has_ended=lambda _: is_drained(database, plan.plan_id),
                is_over_budget=is_over_budget,
            )

    @classmethod
    @contextmanager
    def of_worker(
        cls,
        served: ServedPlans,
        work: Work,
        settings: Settings,
        objects: ObjectStore,
        *,
        plans: Callable[[], Sequence[Plan]] | None = None,
        max_pending: int | None = None,
    ) -> Iterator[ShardQueue]:
        """Yield the queue of a worker for one stage of the plans that it serves, or of those that `plans` returns."""
        with _lease_keeper(served.database, settings) as keeper:
            yield cls(
                keeper=keeper,
                objects=objects,
                seal=settings.store.seal,
                database=served.database,
                work=work,
                plans=plans or served.plans,
                has_ended=served.has_ended,
                max_pending=max_pending,
                skip_lost_plans=served.plan_id is None,
            )

    def __iter__(self) -> Iterator[LeasedShard | None]:
        """Yield leased shards, and None whenever there is nothing to lease at the moment.

        Raises:
            PlanLostError: A plan's files are gone or were altered; the plan is dropped. Not with `skip_lost_plans`.
            PlanForeignError: A plan was signed with another key.
            TransientError: The store or the database is unavailable.
        """
        plans = retry_outage(self.plans)
        leased_s = time.monotonic()
        while not self.is_over_budget():
            self._is_paused = False
            leased = next(filter(None, map(self._lease_next, plans)), None)
            if leased:
                yield leased
            if leased or self._is_paused:  # a paused queue is not idle
                leased_s = time.monotonic()
            if leased:
                continue
            if retry_outage(self.has_ended, time.monotonic() - leased_s):
                return
            yield None
            time.sleep(_POLL_S)
            plans = retry_outage(self.plans)

    def run_or_release(self, leased: LeasedShard, work: Callable[[], Result]) -> Result | None:
        """Run some work on a shard; if it fails, release the shard and return None.

        Raises:
            TransientError: Several shards in a row have failed, or a service stays unavailable.
        """
        with shard_logged(leased.plan, leased.lease, self._stage):
            try:
                result = work()
            except LeaseLostError as error:
                get_run_logger().warning("%s", error.message)
                self.keeper.forget(leased.lease)
                return None
            except TransientError as error:
                self._release(leased.lease, error)
                return None
            self._failures_in_row = 0
            return result

    def finish(self, lease: Lease, *, state: str, message: str = "") -> None:
        """Move a shard to its next state in a transaction of its own, and stop renewing its lease.

        Raises:
            LeaseLostError: Another worker holds the shard, or its plan was dropped.
        """
        try:
            retry_outage(finish_alone, self.database, lease, state=state, message=message)
        finally:
            self.keeper.forget(lease)

    def retry_with_files(self, plan: Plan, work: Callable[[], Result]) -> Result:
        """Read or write files of a plan; see `retry_faults`."""
        return retry_faults(work, {TransientError: partial(self.objects.check_reachable, [plan.plan_uri])})

    @property
    def _stage(self) -> str | None:
        return None if self.work is Work.BOTH else self.work.value

    def _lease_next(self, plan: Plan) -> LeasedShard | None:
        if self.max_pending:
            waiting = retry_outage(count_extracted, self.database, plan.plan_id)
            if waiting >= self.max_pending:
                self._is_paused = True
                return None
        # If the response to a claim is lost, no one renews the lease, and another worker gets the shard.
        while lease := retry_outage(self.keeper.claim, plan.plan_id, self.work):
            with shard_logged(plan, lease, self._stage):
                if lease.attempts >= MAX_ATTEMPTS:
                    self._give_up(lease)
                elif shard := self._read(plan, lease):
                    return LeasedShard(plan=plan, lease=lease, shard=shard)
        return None

    def _read(self, plan: Plan, lease: Lease) -> Shard | None:
        try:
            read = partial(read_shard, self.objects, plan.plan_uri, lease.shard_index, seal=self.seal)
            return self.retry_with_files(plan, read)
        except PlanLostError as error:
            retry_outage(close_plan, self.database, plan.plan_id, state="dropped")
            if not self.skip_lost_plans:
                raise
            get_run_logger().warning("%s", error.message)
            self.keeper.forget(lease)
            return None
        except TransientError as error:
            self._release(lease, error)
            return None

    def _release(self, lease: Lease, error: TransientError) -> None:
        """Release a failed shard; raise the error if the next shard would fail as well."""
        self._failures_in_row += 1
        is_hopeless = error.retries_exhausted or isinstance(error, DiskFullError)
        if is_hopeless or self._failures_in_row == _MAX_FAILURES_IN_ROW:
            raise error
        get_run_logger().warning("Released shard %s: %s", lease.shard_index, error.message)
        retry_outage(self.keeper.release, lease, message=error.message)

    def _give_up(self, lease: Lease) -> None:
        message = f"Given up after {lease.attempts} attempts. {lease.message}"
        get_run_logger().error("Shard %s: %s", lease.shard_index, message)
        with suppress(LeaseLostError):  # another worker has it, or its plan was dropped
            self.finish(lease, state="failed", message=message)


def _lease_keeper(database: Engine, settings: Settings) -> LeaseKeeper:
    holder = holder_name(socket.gethostname(), own_process())
    return LeaseKeeper(database, holder=holder, lease_s=settings.shard.lease_s)


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
            limit_s = _IDLE_TIMEOUT_S if idle_timeout_s is None else idle_timeout_s
            yield cls(plan_id=plan_id, idle_timeout_s=limit_s, database=database)

    def plans(self) -> list[Plan]:
        """List the open plans to serve, oldest first; skip those that a worker of this version cannot process."""
        plans = open_plans(self.database)
        if self.plan_id is None:
            return [plan for plan in plans if self._can_process(plan)]
        return [plan for plan in plans if plan.plan_id == self.plan_id]

    def has_ended(self, idle_timeout_s: float) -> bool:
        """Return whether its plan is drained, or the idle timeout has passed."""
        is_over = self.plan_id is not None and is_drained(self.database, self.plan_id)
        return is_over or idle_timeout_s >= self.idle_timeout_s

    def spec_of(self, plan: Plan) -> RunSpec:
        """Return the spec of a plan.

        Raises:
            ConfigurationError: This version cannot read it, or only the plan's own run can extract by it.
        """
        spec = retry_outage(_read_spec, self.database, plan.spec_id)
        if spec.relevance:
            raise ConfigurationError(
                f"The sampler {spec.sampling.sampler} of plan {plan.plan_id} needs an image-text model, which only its "
                "own run loads; leave this plan to it."
            )
        return spec

    def _can_process(self, plan: Plan) -> bool:
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
