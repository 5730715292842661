"""Removing labels and failures that nobody wants to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, select, tuple_

from infra.database import database_errors
from tasks.results.runs import IS_UNDER_WAY
from tasks.results.tables import FAILURE, RESULT, RUN

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import ColumnElement, Engine, Table

# So many rows a transaction, so that writers never wait for long.
_ROWS = 20_000


def remove_old(engine: Engine, age: timedelta, *, dry_run: bool = False) -> int:
    """Remove labels and failures written longer ago than `age`, by the database's clock; gives their number.

    The next run of a manifest asks its jobs again. Rows of a dataset stay while a run works on it.
    """
    return sum(_remove(engine, table, table.c.created_at < func.now() - age, dry_run) for table in (RESULT, FAILURE))


def remove_superseded(engine: Engine, specs: int, *, dry_run: bool = False) -> int:
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
