"""Writing many rows at once, by Postgres' COPY."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Table


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
