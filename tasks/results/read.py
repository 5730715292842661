"""Reading results and failures as data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from sqlalchemy import Text, cast, select

from infra.database import database_errors
from tasks.results.tables import FAILURE, RESULT

if TYPE_CHECKING:
    from sqlalchemy import Engine, Table


def read_results(engine: Engine, *, dataset: str, spec_id: str) -> pl.DataFrame:
    """Read every label of a dataset under a spec, by job id."""
    return _read(engine, RESULT, dataset, spec_id)


def read_failures(engine: Engine, *, dataset: str, spec_id: str) -> pl.DataFrame:
    """Read every failure of a dataset under a spec, by job id."""
    return _read(engine, FAILURE, dataset, spec_id)


def _read(engine: Engine, table: Table, dataset: str, spec_id: str) -> pl.DataFrame:
    # Data frames know neither UUIDs nor JSON documents.
    columns = [cast(column, Text).label(column.name) if column.name in _AS_TEXT else column for column in table.c]
    query = select(*columns).where(table.c.dataset == dataset, table.c.spec_id == spec_id).order_by(table.c.job_id)
    with database_errors(), engine.connect() as connection:
        rows = connection.execute(query).mappings().all()
    if not rows:
        return pl.DataFrame(schema={column.name: pl.String() for column in table.c})
    return pl.DataFrame([dict(row) for row in rows], infer_schema_length=None)


_AS_TEXT = frozenset({"run_id", "versions"})
