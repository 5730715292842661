"""Taking the shards of plans, one after another, and settling what becomes of each."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from prefect import get_run_logger

from flows.patience import patiently, persistently
from infra.errors import LeaseLostError, PlanLostError, TransientError
from tasks.manifest.plan_file import read_shard
from tasks.plans.keeper import LeaseKeeper
from tasks.plans.lease import Work, finish_alone
from tasks.plans.plan import close_plan, count_extracted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine

    from infra.objects import ObjectStore
    from infra.settings import Settings
    from tasks.domain import Shard
    from tasks.plans.lease import Lease
    from tasks.plans.plan import Plan

    Result = TypeVar("Result")

MOST_ATTEMPTS = 5
_MOST_IN_VAIN = MOST_ATTEMPTS + 1  # more than one shard alone can come to
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldShard:
    """A shard, and the right to work on it."""

    plan: Plan
    lease: Lease
    shard: Shard = field(repr=False)


def make_keeper(database: Engine, settings: Settings) -> LeaseKeeper:
    """Make what keeps this process's leases."""
    holder = f"{socket.gethostname()}, process {os.getpid()}"
    return LeaseKeeper(database, holder=holder, lease_s=settings.shard.lease_s)


@dataclass(slots=True, kw_only=True)
class ShardSource:
    """Shards of some plans, leased as they are asked for.

    Attributes:
        work: What they are taken for.
        plans: Gives the plans; asked again whenever none of them has a shard to give.
        has_ended: Whether to stop, given the seconds since a shard was last taken; asked at the same times.
        most_waiting: Extracted shards of a plan that may wait for an engine before no more are taken; None is any.
        outlives_plans: Whether to go on with the others where a plan's files are gone.
    """

    keeper: LeaseKeeper
    objects: ObjectStore
    database: Engine
    work: Work
    plans: Callable[[], Sequence[Plan]]
    has_ended: Callable[[float], bool]
    most_waiting: int | None = None
    outlives_plans: bool = False
    _in_vain: int = 0
    _is_paused: bool = False

    def __iter__(self) -> Iterator[HeldShard | None]:
        """Give shard after shard, and None where there is nothing to take at the moment.

        Raises:
            PlanLostError: A plan's files are gone; the plan is dropped. Not where this outlives it.
            TransientError: The store or the database is away.
        """
        plans = patiently(self.plans)
        taken_s = time.monotonic()
        while True:
            self._is_paused = False
            held = next(filter(None, map(self._take, plans)), None)
            if held:
                yield held
            if held or self._is_paused:  # who waits for others to catch up is not idle
                taken_s = time.monotonic()
            if held:
                continue
            if patiently(partial(self.has_ended, time.monotonic() - taken_s)):
                return
            yield None
            time.sleep(_POLL_S)
            plans = patiently(self.plans)

    def attempt(self, held: HeldShard, work: Callable[[], Result]) -> Result | None:
        """Do some of the work on a shard, or wait for it; None where it came to nothing, and the shard is given back.

        Raises:
            TransientError: Shard after shard came to nothing, or a service stays away.
        """
        try:
            result = work()
        except LeaseLostError as error:
            get_run_logger().warning("%s", error.message)
            self.keeper.forget(held.lease)
            return None
        except TransientError as error:
            self._give_back(held.lease, error)
            return None
        self._in_vain = 0
        return result

    def _take(self, plan: Plan) -> HeldShard | None:
        if self.most_waiting:
            waiting = patiently(partial(count_extracted, self.database, plan.plan_id))
            if waiting >= self.most_waiting:
                self._is_paused = True
                return None
        # A claim whose answer was lost is renewed by nobody, and others take the shard up.
        while lease := patiently(partial(self.keeper.claim, plan.plan_id, self.work)):
            if lease.attempts >= MOST_ATTEMPTS:
                self._give_up(lease)
            elif shard := self._read(plan, lease):
                return HeldShard(plan=plan, lease=lease, shard=shard)
        return None

    def _read(self, plan: Plan, lease: Lease) -> Shard | None:
        try:
            read = partial(read_shard, self.objects, plan.plan_uri, lease.shard_index)
            return persistently(read, partial(self.objects.reach, [plan.plan_uri]))
        except PlanLostError as error:
            patiently(partial(close_plan, self.database, plan.plan_id, state="dropped"))
            if not self.outlives_plans:
                raise
            get_run_logger().warning("%s", error.message)
            self.keeper.forget(lease)
            return None
        except TransientError as error:
            self._give_back(lease, error)
            return None

    def _give_back(self, lease: Lease, error: TransientError) -> None:
        """Give back a shard that came to nothing; raises the error where the next one will fare no better."""
        self._in_vain += 1
        if error.was_waited_for or self._in_vain == _MOST_IN_VAIN:
            raise error
        get_run_logger().warning("Shard %s is given back: %s", lease.shard_index, error.message)
        patiently(partial(self.keeper.give_back, lease, message=error.message))

    def _give_up(self, lease: Lease) -> None:
        message = f"Given up after {lease.attempts} attempts. {lease.message}"
        get_run_logger().error("Shard %s: %s", lease.shard_index, message)
        with suppress(LeaseLostError):  # another worker's, or its plan was dropped meanwhile
            patiently(partial(finish_alone, self.database, lease, state="failed", message=message))
        self.keeper.forget(lease)
