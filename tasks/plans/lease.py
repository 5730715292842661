"""Leases of shards by the database's clock: claimed by one worker at a time, and renewed while it works."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from sqlalchemy import select, text, update

from infra.database.connect import database_errors
from infra.errors import LeaseLostError
from reelabel.errors import ReelabelError, TransientError
from sql.queries import read_query
from tasks.database.tables import SHARD

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType
    from uuid import UUID

    from sqlalchemy import Connection, Engine


_CLAIM = text(read_query("claim_shards"))
_FREE = text(read_query("free_shards"))
_RENEW = text(read_query("renew_leases"))
_END_ALL = text(read_query("end_leases"))


class Work(StrEnum):
    EXTRACT = "extract"
    INFER = "infer"
    BOTH = "both"


# The first and last state, in alphabetical order, in which a shard can be leased for some work.
_CLAIMABLE_STATES = {
    Work.EXTRACT: ("planned", "planned"),
    Work.INFER: ("extracted", "extracted"),
    Work.BOTH: ("extracted", "planned"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to process a shard, for as long as it is renewed.

    Attributes:
        token: Greater than that of every earlier lease; the fence of the rows written under it.
        attempts: Number of earlier leases of the shard that failed.
        message: Why the last of them failed; empty if unknown.
    """

    plan_id: UUID
    shard_index: int
    token: int
    jobs: int
    attempts: int = 0
    message: str = ""


def claim(
    engine: Engine, plan_id: UUID, work: Work, *, holder: str, lease_s: float, held: Collection[int] = ()
) -> Lease | None:
    """Lease a free shard of a plan that is ready for some work; if none is free, one whose lease has expired.

    `held` are the tokens of the leases on whose shards the holder still works: these stay its own.
    """
    first, last = _CLAIMABLE_STATES[work]
    parameters = {"plan_id": plan_id, "first_state": first, "last_state": last, "claimed_for": work, "holder": holder}
    parameters["lease_s"] = lease_s
    # In autocommit mode, a statement is its own transaction, which halves the round trips.
    with database_errors(), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        row = connection.execute(_CLAIM, parameters).mappings().one_or_none()
        if row is None and connection.execute(_FREE, {"plan_id": plan_id, "held": list(held)}).first():
            row = connection.execute(_CLAIM, parameters).mappings().one_or_none()
    return None if row is None else Lease(plan_id=plan_id, **row)


def renew(engine: Engine, leases: Collection[Lease], *, lease_s: float) -> set[int]:
    """Extend leases to `lease_s` seconds from now; return the tokens of those that are still held."""
    columns = {
        "plan_ids": [lease.plan_id for lease in leases],
        "shard_indexes": [lease.shard_index for lease in leases],
        "tokens": [lease.token for lease in leases],
    }
    with database_errors(), engine.begin() as connection:
        return set(connection.execute(_RENEW, columns | {"lease_s": lease_s}).scalars())


def release(engine: Engine, lease: Lease, *, message: str, **columns: Any) -> None:  # noqa: ANN401 - column values
    """Release a shard after a failed attempt, unless the lease was lost; `columns` are values of other columns."""
    row = (SHARD.c.plan_id == lease.plan_id) & (SHARD.c.shard_index == lease.shard_index)
    is_held = row & (SHARD.c.token == lease.token) & SHARD.c.lease_until.is_not(None)
    failed = {"attempts": SHARD.c.attempts + 1, "message": message, "claimed_for": None, "lease_until": None, **columns}
    with database_errors(), engine.begin() as connection:
        connection.execute(update(SHARD).where(is_held).values(failed))


def release_all(engine: Engine, holder: str) -> None:
    """Release all leases of a holder, including one whose claim succeeded although its reply was lost."""
    with database_errors(), engine.begin() as connection:
        connection.execute(_END_ALL, {"holder": holder, "has_died": False})


def holder_name(host: str, process: str | None) -> str:
    """Return the name under which this process holds leases; `process` is that of `own_process`.

    It is unique even among containers with the same host names and process ids.
    """
    pid = process.rsplit(" ", 2)[1] if process else os.getpid()
    return f"{host}, process {pid} ({sha256((process or uuid4().hex).encode()).hexdigest()[:8]})"


def expire_all(connection: Connection, holder: str) -> None:
    """Expire all leases of a dead holder; each counts as a failed attempt, as if it had expired by itself."""
    connection.execute(_END_ALL, {"holder": holder, "has_died": True})


def finish(connection: Connection, lease: Lease, *, state: str, **columns: Any) -> bool:  # noqa: ANN401 - column values
    """Move a shard to its next state (`extracted`, `done` or `failed`) in the transaction that writes its results.

    Until the transaction ends, nobody else can lease the shard. `columns` are values of other columns.

    Returns:
        False if this lease has already done so, but the reply was lost.

    Raises:
        LeaseLostError: Another worker holds the shard, or its plan was dropped.
    """
    mine = (SHARD.c.plan_id == lease.plan_id) & (SHARD.c.shard_index == lease.shard_index)
    found = connection.execute(select(SHARD.c.token, SHARD.c.state).where(mine).with_for_update()).one_or_none()
    if found is None or found.token != lease.token:
        raise LeaseLostError(
            f"Lease of shard {lease.shard_index} lost (expired and reclaimed, or plan closed); results discarded."
        )
    if found.state == state:
        return False
    ended = {"state": state, "claimed_for": None, "lease_until": None, **columns}
    connection.execute(update(SHARD).where(mine).values(ended))
    return True


def finish_alone(engine: Engine, lease: Lease, *, state: str, message: str = "") -> None:
    """Move a shard to its next state in a transaction of its own; see `finish`."""
    with database_errors(), engine.begin() as connection:
        finish(connection, lease, state=state, message=message)


_RENEWALS_PER_LEASE = 3
_OVERDUE_S = 1.0


class LeaseKeeper:
    """Claims shards, renews their leases in a background thread, and releases those left at exit. Thread-safe.

    `holder` is unique among keepers. If the process dies, its leases expire, and other workers claim its shards.
    """

    def __init__(self, engine: Engine, *, holder: str, lease_s: float) -> None:
        self._engine = engine
        self._holder = holder
        self._lease_s = lease_s
        self._held: dict[int, Lease] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_overdue = False
        self._thread = threading.Thread(target=self._renew, name="lease-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop renewing, and release all leases of the holder.

        That includes one whose claim was interrupted, as by SIGTERM, after the database had granted it.
        """
        self._ended.set()
        self._thread.join()
        with suppress(TransientError):
            release_all(self._engine, self._holder)

    def claim(self, plan_id: UUID, work: Work) -> Lease | None:
        """Lease the next shard of a plan; None if none can be leased now."""
        if self._is_overdue:  # before another worker frees our own expired leases
            self._renew_held()
        with self._lock:
            held = list(self._held)
        lease = claim(self._engine, plan_id, work, holder=self._holder, lease_s=self._lease_s, held=held)
        if lease:
            with self._lock:
                self._held[lease.token] = lease
        return lease

    def forget(self, lease: Lease) -> None:
        """Stop renewing a lease that was lost, or whose shard has ended."""
        with self._lock:
            self._held.pop(lease.token, None)

    def release(self, lease: Lease, *, message: str, **columns: Any) -> None:  # noqa: ANN401 - column values
        """Release a shard after a failed attempt; see `release`."""
        self.forget(lease)
        release(self._engine, lease, message=message, **columns)

    def _renew(self) -> None:
        # After an outage, renew at once: another worker may claim any shard whose lease has expired.
        while not self._ended.wait(_OVERDUE_S if self._is_overdue else self._lease_s / _RENEWALS_PER_LEASE):
            with suppress(ReelabelError):  # not only outages: during a failover, a login may be refused
                self._renew_held()

    def _renew_held(self) -> None:
        with self._lock:
            held = list(self._held.values())
        try:
            alive = renew(self._engine, held, lease_s=self._lease_s) if held else set()
        except ReelabelError:
            self._is_overdue = True
            raise
        self._is_overdue = False
        for lost in (lease for lease in held if lease.token not in alive):
            self.forget(lost)
