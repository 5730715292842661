"""Leases of shards, by the database's clock: taken up by one worker at a time, and by another when they end.

A lease is a token from one sequence for all plans. What is written under it bears it as its fence, so
that of two answers to one job the one of the newer lease stays, whoever is last to write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, text, update

from infra.database.connect import database_errors
from infra.errors import LeaseLostError
from sql.queries import read_query
from tasks.database.tables import SHARD

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from sqlalchemy import ColumnElement, Connection, Engine

_CLAIM = text(read_query("claim_shards"))
_FREE = text(read_query("free_shards"))
_RENEW = text(read_query("renew_leases"))


class Work(StrEnum):
    """What a shard is leased for."""

    EXTRACT = "extract"
    INFER = "infer"
    BOTH = "both"


# The first and the last, in the alphabet, of the states that a shard may be in.
_TAKES = {
    Work.EXTRACT: ("planned", "planned"),
    Work.INFER: ("extracted", "extracted"),
    Work.BOTH: ("extracted", "planned"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on a shard, as long as it is renewed.

    Attributes:
        token: Greater than that of every lease given before; the fence of what is written under it.
        jobs: How many the shard has.
        attempts: Leases of this shard that came to nothing before.
        message: Why the last of them did, if it said so.
    """

    plan_id: UUID
    shard_index: int
    token: int
    jobs: int
    attempts: int = 0
    message: str = ""


def claim(engine: Engine, plan_id: UUID, work: Work, *, holder: str, lease_s: float, most: int = 1) -> list[Lease]:
    """Lease up to `most` shards of a plan that are ready for some work and that nobody holds.

    Where there are fewer, shards whose holders were lost are taken up.

    Raises:
        DatabaseUnavailableError: Nothing was leased, or it was and ends by itself.
    """
    first, last = _TAKES[work]
    asked = {"plan_id": plan_id, "first_state": first, "last_state": last, "claimed_for": work, "holder": holder}
    asked |= {"lease_s": lease_s, "most": most}
    # One statement is a transaction of its own, and half of the round trips.
    with database_errors(), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        rows = [*connection.execute(_CLAIM, asked).mappings()]
        if len(rows) < most and connection.execute(_FREE, {"plan_id": plan_id}).first():
            rows += connection.execute(_CLAIM, asked | {"most": most - len(rows)}).mappings()
    return [Lease(plan_id=plan_id, **row) for row in rows]


def renew(engine: Engine, leases: Collection[Lease], *, lease_s: float) -> set[int]:
    """Hold on to shards for `lease_s` seconds from now; gives the tokens of those that are still held.

    Raises:
        DatabaseUnavailableError: Nothing was renewed.
    """
    columns = {
        "plan_ids": [lease.plan_id for lease in leases],
        "shard_indexes": [lease.shard_index for lease in leases],
        "tokens": [lease.token for lease in leases],
    }
    with database_errors(), engine.begin() as connection:
        return set(connection.execute(_RENEW, columns | {"lease_s": lease_s}).scalars())


def release(engine: Engine, lease: Lease, *, message: str = "") -> None:
    """Give a shard back as it was taken; with a `message`, that counts as an attempt which came to nothing.

    Nothing happens where the lease was lost.

    Raises:
        DatabaseUnavailableError: It was not given back, and the lease ends by itself.
    """
    back: dict[str, Any] = {"claimed_for": None, "lease_until": None}
    if message:
        back |= {"attempts": SHARD.c.attempts + 1, "message": message}
    with database_errors(), engine.begin() as connection:
        connection.execute(update(SHARD).where(_held(lease)).values(back))


def finish(connection: Connection, lease: Lease, *, state: str, **columns: Any) -> bool:  # noqa: ANN401 - column values
    """Take a shard to its next state, in the transaction of what was done for that.

    Until the transaction ends nobody else can lease the shard.

    Args:
        connection: In a transaction.
        lease: The shard, as it is held.
        state: `extracted`, `done` or `failed`.
        columns: Others of the shard's columns.

    Returns:
        False where this very lease did so before, and its holder never heard of it.

    Raises:
        LeaseLostError: Another worker has the shard, or its plan was dropped.
    """
    mine = (SHARD.c.plan_id == lease.plan_id) & (SHARD.c.shard_index == lease.shard_index)
    found = connection.execute(select(SHARD.c.token, SHARD.c.state).where(mine).with_for_update()).one_or_none()
    if found is None or found.token != lease.token:
        raise LeaseLostError(
            f"Shard {lease.shard_index} was taken up by another worker, as its lease had ended; its work here is void."
        )
    if found.state == state:
        return False
    ended = {"state": state, "claimed_for": None, "lease_until": None, **columns}
    connection.execute(update(SHARD).where(mine).values(ended))
    return True


def finish_alone(engine: Engine, lease: Lease, *, state: str, message: str = "") -> None:
    """Take a shard to its next state where nothing else is written.

    Raises:
        LeaseLostError: Another worker has the shard, or its plan was dropped.
        DatabaseUnavailableError: Nothing was changed.
    """
    with database_errors(), engine.begin() as connection:
        finish(connection, lease, state=state, message=message)


def _held(lease: Lease) -> ColumnElement[bool]:
    row = (SHARD.c.plan_id == lease.plan_id) & (SHARD.c.shard_index == lease.shard_index)
    return row & (SHARD.c.token == lease.token) & SHARD.c.lease_until.is_not(None)
