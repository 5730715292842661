"""Removal of rows, plans and files past their retention."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import delete, exists, false, func, not_, or_, select, tuple_

from infra.database.connect import database_errors
from tasks.database.tables import CHUNK, DESCRIPTION, FAILURE, PLAN, RESULT, RESULT_HISTORY, RUN, SHARD
from tasks.results.runs import IS_UNDER_WAY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from sqlalchemy import ColumnElement, Engine, Table

    from reelabel.sources.object_store import ObjectStore


# Which rows of a table are past their retention.
Rule: TypeAlias = "Callable[[Table], ColumnElement[bool]]"

# Whether a URI ends as that of a list of ids or of a page; no other files may be removed.
SELECTION = re.compile(r"/[0-9a-f]{16}\.txt$").search
PAGE = re.compile(r"/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(html|csv)$").search


def remove_old_files(
    objects: ObjectStore, folder_uri: str, may_go: Callable[[str], object], *, age: timedelta, dry_run: bool = False
) -> int:
    """Remove the files of a folder that may go, by their URIs, and are older than `age`; return their number.

    The folder may be local (`file://`), and may be missing. With `dry_run`, only count.
    """
    before, count = datetime.now(UTC) - age, 0
    for info in objects.list(folder_uri):
        if info.modified is not None and info.modified < before and may_go(info.uri):
            count += 1
            if not dry_run:
                objects.remove(info.uri)
    return count


def remove_plans(
    engine: Engine, objects: ObjectStore, *, root_uri: str, age: timedelta, dry_run: bool = False
) -> tuple[int, int]:
    """Remove plans that ended longer ago than `age`, and abandoned open plans of that age; count plans and files.

    An open plan is abandoned if no shard is leased and no run in progress has the same dataset and spec; a run that is
    restarted later makes a new plan. Files of plans without a row, such as those of a planner that died, are removed at
    the same age by the store's clock. With `dry_run`, only count.
    """
    condition = _is_over(age)
    with database_errors(), engine.begin() as connection:
        gone = set(connection.execute(select(PLAN.c.plan_id).where(condition)).scalars())
        stay = set(connection.execute(select(PLAN.c.plan_id)).scalars()) - gone
        if not dry_run:
            connection.execute(delete(PLAN).where(PLAN.c.plan_id.in_(gone)))
    known = {str(plan_id) for plan_id in stay}

    def has_no_plan(uri: str) -> bool:
        # A listing may spell the root differently from the settings.
        return uri.rpartition("/plans/")[2].partition("/")[0] not in known

    folder_uri = f"{root_uri.rstrip('/')}/plans"
    return len(gone), remove_old_files(objects, folder_uri, has_no_plan, age=age, dry_run=dry_run)


def _is_over(age: timedelta) -> ColumnElement[bool]:
    is_leased = exists().where(SHARD.c.plan_id == PLAN.c.plan_id, SHARD.c.lease_until > func.now())
    has_run = exists().where(RUN.c.dataset == PLAN.c.dataset, RUN.c.spec_id == PLAN.c.spec_id, IS_UNDER_WAY)
    is_abandoned = (PLAN.c.state == "open") & (PLAN.c.created_at < func.now() - age) & ~is_leased & ~has_run
    return is_abandoned | (PLAN.c.ended_at < func.now() - age)


# Rows per transaction, few enough that writers do not wait for long.
_BATCH_ROWS = 20_000
_ROWS = (RESULT, DESCRIPTION, FAILURE, RESULT_HISTORY)  # the chunks of a description go with it


def older_than(age: timedelta) -> Rule:
    """Match rows of all tables that are older than `age` by the database's clock."""
    return lambda table: table.c.created_at < func.now() - age


def replaced_before(age: timedelta) -> Rule:
    """Match labels that were replaced longer ago than `age` by the database's clock."""
    return lambda table: table.c.replaced_at < func.now() - age if table is RESULT_HISTORY else false()


def remove_rows(engine: Engine, rule: Rule, *, earlier: Sequence[Rule] = (), dry_run: bool = False) -> int:
    """Remove the rows that a rule matches; return their number.

    The next run of a manifest answers their jobs again. Datasets with a run in progress are skipped. With `dry_run`,
    only count the rows that the `earlier` rules would leave.
    """
    removed = 0
    for table in _ROWS:
        condition = rule(table)
        if dry_run:
            condition &= not_(or_(false(), *(each(table) for each in earlier)))
        removed += _remove(engine, table, condition, dry_run)
    # Chunks go with the row of their job, and may themselves be older.
    key = ("dataset", "job_id", "spec_id")
    jobs = (exists().where(*(each.c[name] == CHUNK.c[name] for name in key)) for each in (RESULT, FAILURE))
    _remove(engine, CHUNK, not_(or_(*jobs)), dry_run)
    return removed


def _remove(engine: Engine, table: Table, condition: ColumnElement[bool], dry_run: bool) -> int:  # noqa: FBT001
    # A run expects the rows of the jobs that it skips, and an evaluation those of all its runs.
    condition &= table.c.dataset.not_in(select(RUN.c.dataset).where(IS_UNDER_WAY))
    if dry_run:
        with database_errors(), engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(table).where(condition)).scalar_one()
    removed, gone, key = 0, 1, [*table.primary_key]
    some = select(*key).where(condition).limit(_BATCH_ROWS)
    while gone:
        with database_errors(), engine.begin() as connection:
            gone = connection.execute(delete(table).where(tuple_(*key).in_(some))).rowcount
        removed += gone
    return removed
