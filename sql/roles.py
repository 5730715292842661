"""The roles that own, write and read Reelabel's tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    import psycopg

OWNER, WRITER, READER = ROLES = ("reelabel_owner", "reelabel_writer", "reelabel_reader")
_SCRIPT = (Path(__file__).parent / "roles.sql").read_text(encoding="utf-8")


def create_roles(connection: psycopg.Connection[Any]) -> None:
    """Create missing roles, make the owner role own Reelabel's tables, and grant rights to the others.

    Safe to call repeatedly.

    Args:
        connection: A connection of an administrator to the database that holds the tables.

    Raises:
        psycopg.errors.InsufficientPrivilege: The login is not an administrator; nothing was changed.
    """
    with connection.transaction():
        connection.execute(_SCRIPT)
