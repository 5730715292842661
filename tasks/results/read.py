"""Reading results and failures as data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from sqlalchemy import BigInteger, Boolean, DateTime, Double, Integer, SmallInteger, Text, Uuid, cast, func, select
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from infra.database import database_errors
from tasks.results.tables import FAILURE, RESULT

if TYPE_CHECKING:
    from sqlalchemy import Column, Engine, Table
    from sqlalchemy.types import TypeEngine


# Named rather than inferred: a column of nulls, or a frame of no rows, has the same types as any other.
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


_ROWS_AT_ONCE = 20_000


def read_results(engine: Engine, *, dataset: str, spec_id: str, most: int | None = None) -> pl.DataFrame:
    """Read the labels of a dataset under a spec by job id, all of them or the first."""
    return _read(engine, RESULT, dataset, spec_id, most)


def read_failures(engine: Engine, *, dataset: str, spec_id: str, most: int | None = None) -> pl.DataFrame:
    """Read the failures of a dataset under a spec by job id, all of them or the first."""
    return _read(engine, FAILURE, dataset, spec_id, most)


def count_endings(engine: Engine, *, dataset: str, spec_id: str) -> tuple[int, int]:
    """Count the labels and the failures of a dataset under a spec."""
    with database_errors(), engine.connect() as connection:
        labels, failures = (
            connection.execute(
                select(func.count()).where(table.c.dataset == dataset, table.c.spec_id == spec_id)
            ).scalar_one()
            for table in (RESULT, FAILURE)
        )
    return labels, failures


def _read(engine: Engine, table: Table, dataset: str, spec_id: str, most: int | None) -> pl.DataFrame:
    schema = {column.name: _DTYPES[type(column.type)] for column in table.c}
    columns = [cast(column, Text).label(column.name) if _is_text(column) else column for column in table.c]
    query = select(*columns).where(table.c.dataset == dataset, table.c.spec_id == spec_id).order_by(table.c.job_id)
    frames = [pl.DataFrame(schema=schema)]
    with database_errors(), engine.connect() as connection:
        # A part at a time: as objects of Python's, rows take several times the memory that they take in a frame.
        found = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query.limit(most))
        frames += [pl.DataFrame([*map(tuple, rows)], schema=schema, orient="row") for rows in found.partitions()]
    return pl.concat(frames)


def _is_text(column: Column[Any]) -> bool:
    """Whether a column is read as text; data frames know neither UUIDs nor JSON documents."""
    return _DTYPES[type(column.type)] == pl.String()
