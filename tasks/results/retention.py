"""Removal of labels, failures, plans, lists of ids and pages past their retention."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import delete, exists, false, func, not_, or_, select, tuple_

from infra.database.connect import database_errors
from tasks.database.tables import CHUNK, DESCRIPTION, FAILURE, PLAN, RESULT, RESULT_HISTORY, RUN, SHARD
from tasks.results.runs import IS_UNDER_WAY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from sqlalchemy import ColumnElement, Engine, Table

    from reelabel.sources.object_store import ObjectInfo, ObjectStore


# Which rows of a table are past their retention.
Rule: TypeAlias = "Callable[[Table], ColumnElement[bool]]"

# No other files in these folders may be removed.
SELECTION = re.compile(r"/[0-9a-f]{16}\.txt$")
PAGE = re.compile(r"/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(html|csv)$")


def remove_old_files(
    objects: ObjectStore, folder_uri: str, names: re.Pattern[str], *, age: timedelta, dry_run: bool = False
) -> int:
    """Remove the files of a folder whose URIs match a pattern and that are older than `age`; return their number.

    The folder is on the store, or a local one (`file://`); a missing one counts as empty. With `dry_run`, only count.
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
    """Remove plans that ended longer ago than `age`, and abandoned open plans of that age; count plans and files.

    An open plan is abandoned if no shard is leased and no run in progress has the same dataset and spec. Files of plans
    without a row, such as those of a planner that died, are removed at the same age, by the store's time of
    modification. A run that is restarted later makes a new plan. With `dry_run`, only count.
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
    is_leased = exists().where(SHARD.c.plan_id == PLAN.c.plan_id, SHARD.c.lease_until > func.now())
    has_run = exists().where(RUN.c.dataset == PLAN.c.dataset, RUN.c.spec_id == PLAN.c.spec_id, IS_UNDER_WAY)
    is_abandoned = (PLAN.c.state == "open") & (PLAN.c.created_at < func.now() - age) & ~is_leased & ~has_run
    return is_abandoned | (PLAN.c.ended_at < func.now() - age)


def _plan_of(uri: str) -> str:
    # A listing may spell the root differently from the settings.
    return uri.rpartition("/plans/")[2].partition("/")[0]


def _is_old(info: ObjectInfo, before: datetime) -> bool:
    return info.modified is not None and info.modified < before


# Rows per transaction, few enough that writers never wait for long.
_BATCH_ROWS = 20_000
_ROWS = (RESULT, DESCRIPTION, FAILURE, RESULT_HISTORY)  # the chunks of a description go with it


def older_than(age: timedelta) -> Rule:
    """Match labels, replaced labels, descriptions and failures older than `age` by the database's clock."""
    return lambda table: table.c.created_at < func.now() - age


def replaced_before(age: timedelta) -> Rule:
    """Match labels that were replaced longer ago than `age` by the database's clock."""
    return lambda table: table.c.replaced_at < func.now() - age if table is RESULT_HISTORY else false()


def remove_rows(engine: Engine, rule: Rule, *, earlier: Sequence[Rule] = (), dry_run: bool = False) -> int:
    """Remove the rows that a rule matches, or count those of them that earlier rules leave; return their number.

    The next run of a manifest answers their jobs again. Datasets with a run in progress are skipped.
    """
    removed = 0
    for table in _ROWS:
        condition = rule(table)
        if dry_run:
            condition &= not_(or_(false(), *(each(table) for each in earlier)))
        removed += _remove(engine, table, condition, dry_run)
    _remove(engine, CHUNK, _is_left_over(), dry_run)
    return removed


def _is_left_over() -> ColumnElement[bool]:
    """Match chunks whose job has no row any more: chunks themselves may be older than the row that they belong to."""
    key = ("dataset", "job_id", "spec_id")
    rows = (select(each).where(*(each.c[name] == CHUNK.c[name] for name in key)).exists() for each in (RESULT, FAILURE))
    return not_(or_(*rows))


def _remove(engine: Engine, table: Table, condition: ColumnElement[bool], dry_run: bool) -> int:  # noqa: FBT001
    # A run skips jobs that have a row, and expects these rows at its end; an evaluation expects those of all its runs.
    condition &= table.c.dataset.not_in(select(RUN.c.dataset).where(IS_UNDER_WAY))
    if dry_run:
        with database_errors(), engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(table).where(condition)).scalar_one()
    removed = 0
    while True:
        some = select(*_key(table)).where(condition).limit(_BATCH_ROWS)
        with database_errors(), engine.begin() as connection:
            gone = connection.execute(delete(table).where(tuple_(*_key(table)).in_(some))).rowcount
        removed += gone
        if gone == 0:
            return removed


def _key(table: Table) -> list[Any]:
    return list(table.primary_key)
