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
    """Create the roles that are missing, hand Reelabel's tables to their owner and give the others their rights.

    Safe to call again.

    Args:
        connection: Of an administrator of the server, to the database whose tables they are.

    Raises:
        psycopg.errors.InsufficientPrivilege: The login is none; nothing was changed.
    """
    with connection.transaction():
        connection.execute(_SCRIPT)
