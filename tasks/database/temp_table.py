"""A manifest's jobs as a temporary table, so that Postgres compares millions of them itself."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Integer, MetaData, Table, Text, or_, select, text

from infra.database.connect import database_errors
from infra.prefetch import prefetch
from tasks.database.tables import FAILURE, RESULT
from tasks.domain import Job
from tasks.manifest.digests import jobs_to_rows
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import polars as pl
    from sqlalchemy import Connection, Engine


def copy_rows(
    connection: Connection,
    table: Table,
    names: tuple[str, ...],
    rows: Iterable[Sequence[Any]],
    *,
    shared: dict[str, Any],
) -> None:
    """Write rows whose keys have none yet.

    Args:
        connection: In a transaction.
        table: Where they go.
        names: The columns that differ from row to row.
        rows: Their values.
        shared: Columns that are the same for all, and their values; those that the table has not are left out.
    """
    constant = {name: value for name, value in shared.items() if name in table.c}
    # Made once: COPY takes them with every row.
    values = tuple(json.dumps(value) if isinstance(value, dict) else str(value) for value in constant.values())
    psycopg: Any = connection.connection.driver_connection  # SQLAlchemy itself knows no COPY
    statement = f"COPY {table.fullname} ({', '.join((*constant, *names))}) FROM STDIN"
    with psycopg.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row((*values, *row))


def array_text(elements: Iterable[str]) -> str:
    """Put an array together as Postgres reads it; psycopg's own way takes several times as long."""
    return f"{{{','.join(elements)}}}"


ASKED = Table(
    "asked",
    MetaData(),
    Column(ROW, Integer, nullable=False),
    *(Column(name, Text) for name in ("job_id", "job_digest", "answer", "task", "subtask")),
    prefixes=["TEMPORARY"],
    postgresql_on_commit="DROP",
)
# What tells a job from others: all that comparing takes.
KEYS = (ROW, "job_id", "job_digest")
# Hashes of millions of ids beside each other; the default would sort them on disk.
_MEMORY = text("SET LOCAL work_mem = '256MB'")


def has_rows(engine: Engine, *, dataset: str, spec_id: str) -> bool:
    """Tell whether any job has ended in a dataset under a spec: where none has, there is nothing to compare with."""
    tables = (RESULT, FAILURE)
    some = (select(each).where(each.c.dataset == dataset, each.c.spec_id == spec_id).exists() for each in tables)
    with database_errors(), engine.connect() as connection:
        return connection.execute(select(or_(*some))).scalar_one()


@contextmanager
def staged_jobs(
    engine: Engine, jobs: Sequence[Job] | Iterable[pl.DataFrame], *, columns: Sequence[str] = ()
) -> Iterator[Connection]:
    """Open a transaction in which `jobs` are the table ASKED; it is gone at the end.

    Args:
        engine: The database.
        jobs: Jobs, or frames of a manifest's columns with `row` and `job_digest`.
        columns: Those of ASKED that are needed; the others are null. None are all.

    Raises:
        DatabaseUnavailableError: Postgres did not answer, here or in the body.
    """
    with database_errors(), engine.begin() as connection:
        connection.execute(_MEMORY)
        ASKED.create(connection)
        copy_in(connection, ASKED, frames_of(jobs), columns=columns)
        yield connection


def copy_in(
    connection: Connection, table: Table, frames: Iterable[pl.DataFrame], *, columns: Sequence[str] = ()
) -> None:
    """Fill columns of a temporary table, or all of them, from frames that have these, perhaps among others."""
    names = columns or table.c.keys()
    psycopg: Any = connection.connection.driver_connection  # SQLAlchemy itself knows no COPY
    with (
        psycopg.cursor() as cursor,
        cursor.copy(f"COPY {table.name} ({', '.join(names)}) FROM STDIN (FORMAT csv)") as copy,
    ):
        # Written whole by Polars: Python sees no row of it. Null is empty, an empty text is quoted.
        for rows in prefetch(frame.select(names).write_csv(include_header=False) for frame in frames):
            copy.write(rows)
    # Nothing else gathers statistics of a temporary table, and the planner would guess a small one.
    connection.execute(text(f"ANALYZE {table.name}"))


def frames_of(jobs: Sequence[Job] | Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Give jobs as frames of a manifest's columns with `row` and `job_digest`, whatever they are."""
    few: list[Job] = []
    for each in jobs:
        if isinstance(each, Job):
            few.append(each)
        else:
            yield each
    if few:
        yield jobs_to_rows(few)
