"""Removing plans that are over, or that nobody works on any more, with their files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import delete, exists, func, select

from infra.database import database_errors
from tasks.results.runs import IS_UNDER_WAY
from tasks.results.tables import PLAN, RUN, SHARD

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import ColumnElement, Engine

    from infra.objects import ObjectInfo, ObjectStore


def remove_plans(
    engine: Engine, objects: ObjectStore, *, root_uri: str, age: timedelta, dry_run: bool = False
) -> tuple[int, int]:
    """Remove plans that ended longer ago than `age`, and open ones as old that nobody works on.

    Of such a one nobody holds a lease of a shard, and no run that is under way asks the same.

    Files of plans without a row, such as a planner leaves that died, go at the same age. A run that is
    started again after that plans anew.

    Args:
        engine: The database.
        objects: The store.
        root_uri: Its root; plans lie below it in `plans/PLAN_ID/`.
        age: By the database's clock, and for files by the store's.
        dry_run: Count only.

    Returns:
        How many plans and how many files went.
    """
    condition = _is_over(age)
    with database_errors(), engine.begin() as connection:
        gone = set(connection.execute(select(PLAN.c.plan_id).where(condition)).scalars())
        stay = set(connection.execute(select(PLAN.c.plan_id)).scalars()) - gone
        if not dry_run:
            connection.execute(delete(PLAN).where(PLAN.c.plan_id.in_(gone)))
    known, before, files = {str(plan_id) for plan_id in stay}, datetime.now(UTC) - age, 0
    for info in objects.list(f"{root_uri.rstrip('/')}/plans"):
        if _is_old(info, before) and _plan_of(info.uri) not in known:
            files += 1
            if not dry_run:
                objects.remove(info.uri)
    return len(gone), files


def _is_over(age: timedelta) -> ColumnElement[bool]:
    leased = exists().where(SHARD.c.plan_id == PLAN.c.plan_id, SHARD.c.lease_until > func.now())
    waited_for = exists().where(RUN.c.dataset == PLAN.c.dataset, RUN.c.spec_id == PLAN.c.spec_id, IS_UNDER_WAY)
    abandoned = (PLAN.c.state == "open") & (PLAN.c.created_at < func.now() - age) & ~leased & ~waited_for
    return abandoned | (PLAN.c.ended_at < func.now() - age)


def _plan_of(uri: str) -> str:
    # A listing may spell the root otherwise than the settings do.
    return uri.rpartition("/plans/")[2].partition("/")[0]


def _is_old(info: ObjectInfo, before: datetime) -> bool:
    return info.modified is not None and info.modified < before
