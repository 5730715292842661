"""A manifest's jobs in a temporary table, so that Postgres can join millions of them, and rows written by COPY."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Integer, MetaData, Table, Text, or_, select, text

from infra.database.connect import database_errors, unlimited
from infra.prefetch import prefetch
from tasks.database.tables import DESCRIPTION, FAILURE, RESULT
from tasks.domain import Job
from tasks.manifest.digests import jobs_to_rows
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import polars as pl
    from sqlalchemy import Connection, Engine

    from tasks.database.scope import Scope

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def copy_rows(
    connection: Connection,
    table: Table,
    names: tuple[str, ...],
    rows: Iterable[Sequence[Any]],
    *,
    shared: dict[str, Any],
) -> None:
    """Write new rows by COPY in a transaction; none of their keys may exist yet.

    `names` are the columns of the rows' values, of which texts are made storable. `shared` has the values that are the
    same in all rows; columns that the table lacks are ignored.
    """
    constant = {name: value for name, value in shared.items() if name in table.c}
    # Converted once, since COPY repeats them in every row.
    values = tuple(json.dumps(value) if isinstance(value, dict) else str(value) for value in constant.values())
    statement = f"COPY {table.fullname} ({', '.join((*constant, *names))}) FROM STDIN"
    with _driver(connection).cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row((*values, *(storable(value) if isinstance(value, str) else value for value in row)))


def array_literal(elements: Iterable[str]) -> str:
    """Return an array literal of Postgres; psycopg's conversion takes several times as long."""
    return f"{{{','.join(elements)}}}"


def storable(text: str) -> str:
    """Replace what Postgres cannot store: NUL, which decoders quote from damaged files, and unpaired surrogates."""
    return text if text.isascii() and "\0" not in text else _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


MANIFEST_JOBS = Table(
    "manifest_jobs",
    MetaData(),
    Column(ROW, Integer, nullable=False),
    *(Column(name, Text) for name in ("job_id", "job_digest", "answer", "task", "subtask")),
    prefixes=["TEMPORARY"],
    postgresql_on_commit="DROP",
)
# The columns that identify a job.
KEYS = (ROW, "job_id", "job_digest")
# Enough memory to hash millions of ids, which Postgres would otherwise sort on disk.
_LIMITS = text(unlimited(work_mem="256MB"))


def has_rows(engine: Engine, scope: Scope) -> bool:
    """Whether a dataset has any row under a spec."""
    some = (select(each).where(scope.matches(each)).exists() for each in (RESULT, DESCRIPTION, FAILURE))
    with database_errors(), engine.connect() as connection:
        return connection.execute(select(or_(*some))).scalar_one()


@contextmanager
def temp_job_table(
    engine: Engine, jobs: Sequence[Job] | Iterable[pl.DataFrame], *, columns: Sequence[str] = ()
) -> Iterator[Connection]:
    """Open a transaction with `jobs` in the temporary table MANIFEST_JOBS, which is dropped at its end.

    Data frames have the manifest's columns, `row` and `job_digest`. With `columns`, only these are filled.
    """
    with database_errors(), engine.begin() as connection:
        status = _driver(connection).info.parameter_status
        if status("default_transaction_read_only") == "on" and status("in_hot_standby") != "on":
            connection.execute(text("SET TRANSACTION READ WRITE"))  # a read-only transaction creates no table
        connection.execute(_LIMITS)
        MANIFEST_JOBS.create(connection)
        copy_data_frames(connection, MANIFEST_JOBS, to_data_frames(jobs), columns=columns)
        yield connection


def copy_data_frames(
    connection: Connection, table: Table, frames: Iterable[pl.DataFrame], *, columns: Sequence[str] = ()
) -> None:
    """Fill `columns`, or all, of a temporary table from data frames; other columns of the frames are ignored."""
    names = columns or table.c.keys()
    statement = f"COPY {table.name} ({', '.join(names)}) FROM STDIN (FORMAT csv)"
    with _driver(connection).cursor() as cursor, cursor.copy(statement) as copy:
        # Polars writes each frame as CSV, without Python objects per row. Null is empty; texts are quoted, since a line
        # of nothing but an unquoted \. ends the data for Postgres before 18.
        written = (frame.select(names).write_csv(include_header=False, quote_style="non_numeric") for frame in frames)
        for rows in prefetch(written):
            copy.write(rows)
    # Autovacuum does not analyze temporary tables, and the planner would assume a small one.
    connection.execute(text(f"ANALYZE {table.name}"))


def _driver(connection: Connection) -> Any:  # noqa: ANN401 - SQLAlchemy does not support COPY
    return connection.connection.driver_connection


def to_data_frames(jobs: Sequence[Job] | Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield jobs as data frames with the manifest's columns, `row` and `job_digest`; frames pass unchanged."""
    single: list[Job] = []
    for each in jobs:
        if isinstance(each, Job):
            single.append(each)
        else:
            yield each
    if single:
        yield jobs_to_rows(single)
