"""Writing many rows at once, by Postgres' COPY."""

from __future__ import annotations

import json
from itertools import compress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Table


def copy_rows(
    connection: Connection,
    table: Table,
    names: tuple[str, ...],
    rows: Sequence[Sequence[Any]],
    *,
    shared: dict[str, Any],
) -> None:
    """Write rows whose keys have none yet.

    Args:
        connection: In a transaction.
        table: Where they go.
        names: The columns that differ from row to row; those that may be null are so by default.
        rows: Their values.
        shared: Columns that are the same for all, and their values; those that the table has not are left out.
    """
    constant = {name: value for name, value in shared.items() if name in table.c}
    # Made once: COPY takes them with every row.
    values = tuple(json.dumps(value) if isinstance(value, dict) else str(value) for value in constant.values())
    # Columns that no row fills, of which there are many, cost as much as others: left out, they are null as well.
    filled = [any(value is not None for value in column) for column in zip(*rows, strict=True)]
    columns = (*constant, *compress(names, filled))
    psycopg: Any = connection.connection.driver_connection  # SQLAlchemy itself knows no COPY
    with psycopg.cursor() as cursor, cursor.copy(f"COPY {table.fullname} ({', '.join(columns)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row((*values, *compress(row, filled)))


def array_text(elements: Iterable[str]) -> str:
    """Put an array together as Postgres reads it; psycopg's own way takes several times as long."""
    return f"{{{','.join(elements)}}}"
