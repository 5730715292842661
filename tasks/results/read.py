"""Reading results and failures as data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from sqlalchemy import BigInteger, Boolean, DateTime, Double, Integer, SmallInteger, Text, Uuid, cast, select
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


def read_results(engine: Engine, *, dataset: str, spec_id: str) -> pl.DataFrame:
    """Read every label of a dataset under a spec, by job id."""
    return _read(engine, RESULT, dataset, spec_id)


def read_failures(engine: Engine, *, dataset: str, spec_id: str) -> pl.DataFrame:
    """Read every failure of a dataset under a spec, by job id."""
    return _read(engine, FAILURE, dataset, spec_id)


def _read(engine: Engine, table: Table, dataset: str, spec_id: str) -> pl.DataFrame:
    columns = [cast(column, Text).label(column.name) if _is_text(column) else column for column in table.c]
    query = select(*columns).where(table.c.dataset == dataset, table.c.spec_id == spec_id).order_by(table.c.job_id)
    with database_errors(), engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(query)]
    return pl.DataFrame(rows, schema={column.name: _DTYPES[type(column.type)] for column in table.c}, orient="row")


def _is_text(column: Column[Any]) -> bool:
    """Whether a column is read as text; data frames know neither UUIDs nor JSON documents."""
    return _DTYPES[type(column.type)] == pl.String()
