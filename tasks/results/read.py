"""Reads labels, descriptions, failures and chunks as data frames, and all rows of one job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Double,
    Integer,
    SmallInteger,
    Text,
    Uuid,
    cast,
    exists,
    func,
    null,
    select,
    union,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from tasks.database.columns import in_reading_order
from tasks.database.tables import (
    CHUNK,
    DESCRIPTION,
    DESCRIPTION_CHUNK,
    FAILURE,
    RESULT,
    RESULT_HISTORY,
    RUN,
)
from tasks.database.temp_table import storable
from tasks.domain.chunks import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from sqlalchemy import Column, ColumnElement, Engine, Executable, Select, Table
    from sqlalchemy.types import TypeEngine

    from tasks.database.scope import Scope


# Explicit, so that columns of nulls and frames without rows have the same types as others.
_DTYPES: dict[type[TypeEngine[Any]], pl.DataType] = {
    Text: pl.String(),
    Uuid: pl.String(),
    JSONB: pl.String(),
    Boolean: pl.Boolean(),
    SmallInteger: pl.Int16(),
    Integer: pl.Int32(),
    BigInteger: pl.Int64(),
    Double: pl.Float64(),
    ARRAY: pl.List(pl.Float64()),
    DateTime: pl.Datetime("us", "UTC"),
}


_ROWS_PER_PART = 20_000


def read_results(engine: Engine, scope: Scope, *, limit: int | None = None) -> pl.DataFrame:
    """Read the labels of a dataset under a spec in the order of job ids, or the first `limit` of them."""
    return _read(engine, RESULT, scope, limit)


def read_failures(engine: Engine, scope: Scope, *, limit: int | None = None) -> pl.DataFrame:
    """Read failures as `read_results` reads labels."""
    return _read(engine, FAILURE, scope, limit)


def read_descriptions(engine: Engine, scope: Scope, *, limit: int | None = None) -> pl.DataFrame:
    """Read descriptions as `read_results` reads labels."""
    return _read(engine, DESCRIPTION, scope, limit)


def read_description_chunks(engine: Engine, scope: Scope, *, limit: int | None = None) -> Iterator[pl.DataFrame]:
    """Yield the chunks of described videos in order, in parts; the first part has no rows."""
    return _chunks(engine, DESCRIPTION_CHUNK, scope, limit)


def read_chunks(engine: Engine, scope: Scope, *, limit: int | None = None) -> Iterator[pl.DataFrame]:
    """Yield the chunks of jobs in order, in parts; the first part has no rows. `chunk_id` is such as `job#3`."""
    chunk_id = pl.concat_str("job_id", pl.lit(MARK), "chunk").alias("chunk_id")
    return (part.select(chunk_id, pl.all()) for part in _chunks(engine, CHUNK, scope, limit))


def _chunks(engine: Engine, table: Table, scope: Scope, limit: int | None) -> Iterator[pl.DataFrame]:
    schema = _schema(table)
    query = _select(table, schema, scope.matches(table)).order_by(table.c.job_id, table.c.chunk).limit(limit)
    yield pl.DataFrame(schema=schema)
    yield from _parts(engine, query, schema)


def failures_of_run(engine: Engine, run_id: UUID, *, limit: int) -> list[dict[str, str]]:
    """Read the jobs that failed in a run, as job id, code and message, in the order of job ids."""
    columns = (FAILURE.c.job_id, FAILURE.c.code, FAILURE.c.message)
    query = select(*columns).where(FAILURE.c.run_id == run_id).order_by(FAILURE.c.job_id).limit(limit)
    with database_errors(), engine.connect() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def read_outcomes(
    engine: Engine, scope: Scope, *, describes: bool = False, limit: int | None = None
) -> Iterator[pl.DataFrame]:
    """Yield labels and failures in the order of job ids, in parts; the first part has no rows.

    Columns that only labels have are null for failures, and vice versa. With `describes`, descriptions take the place
    of labels.
    """
    return _outcomes(engine, scope.matches, describes=describes, limit=limit)


def read_outcomes_of_run(engine: Engine, run_id: UUID, *, describes: bool) -> Iterator[pl.DataFrame]:
    """Yield the rows that a run wrote and no other run has replaced, as `read_outcomes` does."""
    return _outcomes(engine, lambda table: table.c.run_id == run_id, describes=describes)


def _outcomes(
    engine: Engine, condition: Callable[[Table], ColumnElement[bool]], *, describes: bool, limit: int | None = None
) -> Iterator[pl.DataFrame]:
    ended = DESCRIPTION if describes else RESULT
    schema = _schema(ended, FAILURE)
    yield pl.DataFrame(schema=schema)
    both = (_select(table, schema, condition(table)) for table in (ended, FAILURE))
    yield from _parts(engine, union_all(*both).order_by("job_id").limit(limit), schema)


def count_outcomes(engine: Engine, scope: Scope) -> tuple[int, int]:
    """Count the labels or descriptions, and the failures, of a dataset under a spec."""
    with database_errors(), engine.connect() as connection:
        return sum(scope.count(connection, table) for table in (RESULT, DESCRIPTION)), scope.count(connection, FAILURE)


def count_rows_of_run(engine: Engine, run_id: UUID) -> int:
    """Count the labels, descriptions and failures that a run wrote and no other run has replaced."""
    with database_errors(), engine.connect() as connection:
        return sum(
            connection.execute(select(func.count()).where(table.c.run_id == run_id)).scalar_one()
            for table in (RESULT, DESCRIPTION, FAILURE)
        )


def has_words(engine: Engine, scope: Scope) -> bool:
    """Whether any job of a dataset was answered in words under a spec."""
    query = select(exists().where(scope.matches(RESULT), RESULT.c.label.is_(None)))
    with database_errors(), engine.connect() as connection:
        return bool(connection.execute(query).scalar_one())


def count_labels(engine: Engine, scope: Scope) -> dict[str, int]:
    """Count the jobs of a dataset under a spec by label, the most frequent first."""
    query = select(RESULT.c.label, func.count()).where(scope.matches(RESULT), RESULT.c.label.is_not(None))
    with database_errors(), engine.connect() as connection:
        rows = connection.execute(query.group_by(RESULT.c.label).order_by(func.count().desc(), RESULT.c.label))
        return dict(rows.all())


def count_ids_by_dataset(engine: Engine, job_ids: Sequence[str]) -> dict[str, int]:
    """Count the job ids with a label, a description or a failure, by dataset."""
    with database_errors(), engine.connect() as connection:
        # Naming the datasets lets Postgres use the primary keys, which begin with the dataset.
        datasets = [*connection.execute(select(RUN.c.dataset).distinct()).scalars()]
        found = union(
            *(
                select(table.c.dataset, table.c.job_id).where(
                    table.c.dataset == func.any(datasets), table.c.job_id == func.any([*map(storable, job_ids)])
                )
                for table in (RESULT, DESCRIPTION, FAILURE)
            )
        ).subquery()
        rows = connection.execute(select(found.c.dataset, func.count()).group_by(found.c.dataset).order_by("dataset"))
        return dict(rows.all())


def _read(engine: Engine, table: Table, scope: Scope, limit: int | None) -> pl.DataFrame:
    schema = _schema(table)
    query = _select(table, schema, scope.matches(table)).order_by(table.c.job_id).limit(limit)
    return pl.concat([pl.DataFrame(schema=schema), *_parts(engine, query, schema)])


def _schema(*tables: Table) -> dict[str, pl.DataType]:
    return {column.name: _DTYPES[type(column.type)] for table in tables for column in in_reading_order(table)}


def _select(table: Table, schema: Iterable[str], condition: ColumnElement[bool]) -> Select[Any]:
    columns = (_read_as(table.c[name]) if name in table.c else null() for name in schema)
    named = (column.label(name) for column, name in zip(columns, schema, strict=True))
    return select(*named).where(condition)


def _read_as(column: Column[Any]) -> ColumnElement[Any]:
    return cast(column, Text) if _DTYPES[type(column.type)] == pl.String() else column


def _parts(engine: Engine, query: Executable, schema: dict[str, pl.DataType]) -> Iterator[pl.DataFrame]:
    # Rows as Python objects take several times the memory of a data frame.
    with database_errors(), engine.connect() as connection:
        found = connection.execution_options(yield_per=_ROWS_PER_PART).execute(query)
        for rows in found.partitions():
            yield pl.DataFrame([*map(tuple, rows)], schema=schema, orient="row")


_KINDS = {RESULT: "label", DESCRIPTION: "description", FAILURE: "failure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRows:
    """The rows of one job.

    Attributes:
        current: One row per dataset and spec, newest first: its columns, its `kind` (label, description or failure),
            and the `manifest_uri` and `native_sampler` of the run that wrote it.
        history: The replaced labels, newest first.
    """

    current: tuple[Mapping[str, Any], ...]
    history: tuple[Mapping[str, Any], ...]


def read_job(engine: Engine, job_id: str, *, dataset: str | None = None) -> JobRows:
    """Read the rows of a job, in all datasets or in one.

    Raises:
        ConfigurationError: There is none.
    """
    of_run = (RUN.c.manifest_uri, RUN.c.native_sampler)
    current: list[dict[str, Any]] = []
    with database_errors(), engine.connect() as connection:
        # Naming the datasets lets Postgres use the primary keys, which begin with the dataset.
        datasets = [dataset] if dataset else [*connection.execute(select(RUN.c.dataset).distinct()).scalars()]
        for table, kind in _KINDS.items():
            query = select(table, *of_run).join_from(table, RUN, table.c.run_id == RUN.c.run_id)
            its = (table.c.dataset == func.any(datasets)) & (table.c.job_id == job_id)
            current += [{"kind": kind, **row} for row in connection.execute(query.where(its)).mappings()]
        earlier = select(RESULT_HISTORY).where(
            RESULT_HISTORY.c.dataset == func.any(datasets), RESULT_HISTORY.c.job_id == job_id
        )
        history = connection.execute(earlier.order_by(RESULT_HISTORY.c.history_id.desc())).mappings().all()
    if not current:
        where = f"Dataset {dataset} has" if dataset else "There is"
        raise ConfigurationError(f"{where} no outcome of a job {job_id}; `reelabel results` lists those of a run.")
    current.sort(key=lambda row: row["created_at"], reverse=True)
    return JobRows(current=tuple(current), history=tuple(map(dict, history)))
