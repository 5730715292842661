"""Whether a database has the tables that this version writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.database import database_errors
from infra.errors import ConfigurationError
from sql.migrate import current, head, revisions, upgrade

if TYPE_CHECKING:
    from sqlalchemy import Engine


def upgrade_schema(engine: Engine) -> None:
    """Bring a database to this version's schema; safe to call again and from many processes at once.

    Raises:
        ConfigurationError: A newer Reelabel has upgraded the database.
        DatabaseUnavailableError: Postgres did not answer.
    """
    _refuse_newer(_revision(engine))
    with database_errors():
        upgrade(engine.url.render_as_string(hide_password=False))


def check_schema(engine: Engine) -> None:
    """Check that a database has exactly this version's schema, and change nothing.

    Raises:
        ConfigurationError: It is older, newer, or was never prepared.
        DatabaseUnavailableError: Postgres did not answer.
    """
    found = _revision(engine)
    _refuse_newer(found)
    if found != head():
        state = f"has schema {found}" if found else "has no tables of Reelabel"
        raise ConfigurationError(
            f"The database {state}, but this version needs schema {head()}; starting a run upgrades it."
        )


def _revision(engine: Engine) -> str | None:
    with database_errors(), engine.connect() as connection:
        return current(connection)


def _refuse_newer(found: str | None) -> None:
    if found and found not in revisions():
        raise ConfigurationError(
            f"The database has schema {found}, which is newer than this version's {head()}; update Reelabel."
        )
