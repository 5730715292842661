"""Query results as data frames, by COPY: millions of rows without a Python object for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyarrow import csv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Select

_BLOCK_BYTES = 8 * 1024**2


def copy_query(
    connection: Connection, query: Select[*tuple[Any, ...]], columns: dict[str, pa.DataType]
) -> Iterator[pl.DataFrame]:
    """Run a query, in a transaction, and yield its rows in data frames of a few megabytes, of the given columns."""
    psycopg: Any = connection.connection.driver_connection  # SQLAlchemy does not support COPY
    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    statement = f"COPY ({compiled}) TO STDOUT (FORMAT csv)"
    block = bytearray()
    with psycopg.cursor() as cursor, cursor.copy(statement, compiled.params) as copy:
        for row in copy:
            block += row
            if len(block) >= _BLOCK_BYTES:
                yield _frame(block, columns)
                block = bytearray()
    yield _frame(block, columns)


def _frame(block: bytearray, columns: dict[str, pa.DataType]) -> pl.DataFrame:
    if not block:
        empty = pl.from_arrow(pa.schema(columns.items()).empty_table())
        assert isinstance(empty, pl.DataFrame)
        return empty
    table = csv.read_csv(
        pa.BufferReader(pa.py_buffer(bytes(block))),
        read_options=csv.ReadOptions(column_names=list(columns), block_size=len(block)),  # a row may be of any length
        parse_options=csv.ParseOptions(newlines_in_values=True),
        # In CSV, Postgres writes NULL as an unquoted empty field, and an empty string as "".
        convert_options=csv.ConvertOptions(
            column_types=columns, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
