"""Remove what is past its retention: labels, failures, lists of ids and pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, exists, func, select, tuple_

from infra.database.connect import database_errors
from tasks.database.tables import FAILURE, PLAN, RESULT, RUN, SHARD
from tasks.results.runs import IS_UNDER_WAY

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import ColumnElement, Engine, Table

    from reelabel.sources.object_store import ObjectInfo, ObjectStore


# Nothing else in these folders is ours to remove.
SELECTION = re.compile(r"/[0-9a-f]{16}\.txt$")
PAGE = re.compile(r"/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.html$")


def remove_old_files(
    objects: ObjectStore, folder_uri: str, names: re.Pattern[str], *, age: timedelta, dry_run: bool = False
) -> int:
    """Remove a folder's files of some names that were written longer ago than `age`, by the store's clock.

    Args:
        objects: The store.
        folder_uri: On the store, or a local folder's `file://` URI; one that is not there has no files.
        names: What the URIs of those that may go must match.
        age: What is younger stays.
        dry_run: Count only.

    Returns:
        How many went.
    """
    before, count = datetime.now(UTC) - age, 0
    for info in objects.list(folder_uri):
        if names.search(info.uri) and info.modified is not None and info.modified < before:
            count += 1
            if not dry_run:
                objects.remove(info.uri)
    return count


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


# So many rows a transaction, so that writers never wait for long.
_ROWS = 20_000


def remove_old_rows(engine: Engine, age: timedelta, *, dry_run: bool = False) -> int:
    """Remove labels and failures written longer ago than `age`, by the database's clock; gives their number.

    The next run of a manifest asks its jobs again. Rows of a dataset stay while a run works on it.
    """
    return sum(_remove(engine, table, table.c.created_at < func.now() - age, dry_run) for table in (RESULT, FAILURE))


def remove_superseded_rows(engine: Engine, specs: int, *, dry_run: bool = False) -> int:
    """Remove labels and failures of all but the `specs` latest used specs of each dataset; gives their number.

    Rows of a dataset stay while a run works on it.
    """
    place = func.row_number().over(partition_by=RUN.c.dataset, order_by=func.max(RUN.c.started_at).desc())
    ranked = select(RUN.c.dataset, RUN.c.spec_id, place.label("place")).group_by(RUN.c.dataset, RUN.c.spec_id)
    ranked_specs = ranked.subquery()
    old = select(ranked_specs.c.dataset, ranked_specs.c.spec_id).where(ranked_specs.c.place > specs)
    return sum(
        _remove(engine, table, tuple_(table.c.dataset, table.c.spec_id).in_(old), dry_run)
        for table in (RESULT, FAILURE)
    )


def _remove(engine: Engine, table: Table, condition: ColumnElement[bool], dry_run: bool) -> int:  # noqa: FBT001
    # A run leaves out the jobs that have a row, and counts on it at its end; an evaluation, on those of its other runs.
    condition &= table.c.dataset.not_in(select(RUN.c.dataset).where(IS_UNDER_WAY))
    if dry_run:
        with database_errors(), engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(table).where(condition)).scalar_one()
    removed = 0
    while True:
        some = select(*_key(table)).where(condition).limit(_ROWS)
        with database_errors(), engine.begin() as connection:
            gone = connection.execute(delete(table).where(tuple_(*_key(table)).in_(some))).rowcount
        removed += gone
        if gone == 0:
            return removed


def _key(table: Table) -> list[Any]:
    return list(table.primary_key)
