"""Selects jobs by id and outcome, in the database."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import psycopg
import pyarrow as pa
from sqlalchemy import Column, Integer, MetaData, Table, Text, Uuid, func, select, text

from infra.database.copy_out import copy_query
from infra.errors import DatabaseUnavailableError
from reelabel.errors import ConfigurationError
from reelabel.text import shorten
from sql.queries import read_query
from tasks.database.temp_table import copy_data_frames, storable, temp_job_table
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from sqlalchemy import ColumnElement, Connection, Engine

    from tasks.database.scope import Scope
    from tasks.manifest.table import JobTable
    from tasks.results.selection import Selection

_NAMED = Table(
    "named",
    MetaData(),
    Column("job_id", Text, primary_key=True),
    prefixes=["TEMPORARY"],
    postgresql_on_commit="DROP",
)
_CHOSEN = Table(
    "chosen",
    MetaData(),
    Column(ROW, Integer, nullable=False),
    *(Column(name, Text) for name in ("state", "code")),
    Column("run_id", Uuid),
    prefixes=["TEMPORARY"],
    postgresql_on_commit="DROP",
)
_BEFORE, _, _AFTER = read_query("choose").partition("{where}")
_JOB_STATE = text("SELECT * FROM reelabel.job_state LIMIT 0")
# Columns of the view that the query takes from the manifest, or that are the same for all jobs.
_NOT_TAKEN = frozenset({"dataset", "spec_id", "job_id", "job_digest", "source_fingerprint", "state", "task", "subtask"})
_UNKNOWN = text("SELECT job_id FROM named EXCEPT SELECT job_id FROM manifest_jobs ORDER BY job_id")
_EVERY_JOB = "true"
_CAN_WRITE = text(
    "SELECT EXISTS (SELECT FROM pg_roles WHERE pg_has_role(oid, 'MEMBER') "
    "AND has_table_privilege(oid, 'reelabel.result', 'INSERT, UPDATE, DELETE'))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenJobs:
    """The jobs that a selection matches.

    Attributes:
        reasons: Number of jobs by outcome: `missing`, `labelled`, or the code of their failure.
        runs: Number of jobs by the run that wrote their result.
        unknown: Named ids that are not in the manifest, sorted.
        elsewhere: A sentence for each other spec that has matching jobs, with how to select them there.
    """

    jobs: JobTable
    reasons: dict[str, int]
    runs: dict[UUID, int]
    unknown: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()


def choose_jobs(
    reader: Engine,
    scope: Scope,
    selection: Selection,
    *,
    jobs: JobTable,
    run_id: UUID | None = None,
    named: Sequence[str] = (),
    timeout_s: float = 60,
) -> ChosenJobs:
    """Select jobs of a manifest, in one snapshot.

    Args:
        reader: The database, with a read-only login, since the user's SQL is run verbatim.
        scope: The rows that determine the outcomes of jobs.
        selection: The user's selection.
        jobs: The jobs to select from.
        run_id: The run that wrote the rows; None accepts any.
        named: Ids of jobs to select in addition.
        timeout_s: Time limit of the query, without the copy of the jobs.

    Raises:
        ConfigurationError: Postgres rejects the user's SQL, the query times out, or the login can write.
    """
    with temp_job_table(reader, jobs.parts()) as connection:
        if selection.where:
            _require_reader(connection)
        _NAMED.create(connection)
        _CHOSEN.create(connection)
        ids = pl.DataFrame({"job_id": [*map(storable, named)]}, schema={"job_id": pl.String})
        copy_data_frames(connection, _NAMED, [ids.unique()])
        connection.execute(text("SET TRANSACTION READ ONLY"))
        unknown = tuple(connection.execute(_UNKNOWN).scalars())
        connection.execute(text("SELECT set_config('statement_timeout', :ms, true)"), {"ms": str(int(timeout_s * 1e3))})
        selects_all = not (named or selection.names_states)
        _fill_chosen(connection, scope, selection, run_id=run_id, selects_all=selects_all)
        rows = np.zeros(jobs.rows, np.bool_)
        for frame in copy_query(connection, select(_CHOSEN.c.row), {ROW: pa.uint32()}):
            rows[frame[ROW].to_numpy()] = True
        reasons = _count_by(connection, func.coalesce(_CHOSEN.c.code, _CHOSEN.c.state))
        runs = _count_by(connection, _CHOSEN.c.run_id)
        runs.pop(None, None)  # of jobs without a result
        return ChosenJobs(jobs=jobs.chosen(rows), reasons=reasons, runs=runs, unknown=unknown)


def _count_by(connection: Connection, value: ColumnElement[Any]) -> dict[Any, int]:
    count = func.count()
    rows = connection.execute(select(value, count).group_by(value).order_by(count.desc(), value))
    return dict(rows.all())


def _require_reader(connection: Connection) -> None:
    """Refuse a login that can write: the user's SQL could call a function that makes its transaction writable."""
    if connection.execute(_CAN_WRITE).scalar_one():
        raise ConfigurationError(
            "A condition in SQL requires a read-only login, but this one can write; set database.reader_url to a login "
            "with the role reelabel_reader, which `reelabel database roles` creates."
        )


def _fill_chosen(
    connection: Connection, scope: Scope, selection: Selection, *, run_id: UUID | None, selects_all: bool
) -> None:
    where = selection.where or _EVERY_JOB
    values = (
        *(scope.dataset, scope.spec_id, selects_all),
        *(selection.by_failure, selection.code, selection.missing),
        *(selection.by_label, selection.label, selection.margin_below),
        *(run_id, selection.task, selection.since, selection.until),
    )
    columns = set(connection.execute(_JOB_STATE).keys()) - _NOT_TAKEN
    before = _BEFORE.replace("{columns}", ", ".join(f"ended.{name}" for name in sorted(columns)))
    driver: Any = connection.connection.driver_connection
    # With server-side parameters, the user's text is sent as it is, with its percent signs, and Postgres accepts only a
    # single statement.
    with _sql_errors(where), psycopg.RawCursor(driver) as cursor:
        cursor.execute(f"{before}{where}{_AFTER}", values)


@contextmanager
def _sql_errors(where: str) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.QueryCanceled:
        raise ConfigurationError("Selecting jobs by the condition in SQL timed out; simplify it.") from None
    except psycopg.OperationalError as error:
        raise DatabaseUnavailableError(f"Postgres failed: {' '.join(str(error).split())} Try again.") from error
    except psycopg.Error as error:
        if where == _EVERY_JOB:
            raise
        why = " ".join((error.diag.message_primary or str(error)).split())
        raise ConfigurationError(f"Postgres cannot run the condition {shorten(where)}: {why}.") from None
