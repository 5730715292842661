"""Whether a database has the tables that this version writes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from psycopg.errors import InsufficientPrivilege
from sqlalchemy.exc import ProgrammingError

from infra.database.connect import Login, connect, database_errors
from reelabel.errors import ConfigurationError
from sql.migrate import current, head, revisions, upgrade

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from infra.settings import DatabaseSettings


def prepare_database(settings: DatabaseSettings) -> None:
    """Bring a database to this version's schema, by its owner's login, and see that a run's login finds it.

    Raises:
        ConfigurationError: The database has a revision that this version does not know, or the login may not.
        DatabaseUnavailableError: Postgres did not answer.
    """
    owner, writer = connect(settings, Login.OWNER), connect(settings)
    try:
        upgrade_schema(owner)
        check_schema(writer)
    finally:
        owner.dispose()
        writer.dispose()


def upgrade_schema(engine: Engine) -> None:
    """Bring a database to this version's schema; safe to call again and from many processes at once.

    Raises:
        ConfigurationError: The database has a revision that this version does not know, or the login may not.
        DatabaseUnavailableError: Postgres did not answer.
    """
    found = _revision(engine)
    _refuse_unknown(found)
    if found == head():
        return  # so that a login without the rights of an owner can start what needs no upgrade
    with database_errors(), _refusal_explained(found):
        upgrade(engine.url.render_as_string(hide_password=False))


@contextmanager
def _refusal_explained(found: str | None) -> Iterator[None]:
    try:
        yield
    except ProgrammingError as error:
        if not isinstance(error.orig, InsufficientPrivilege):
            raise
        raise ConfigurationError(
            f"The database has {_described(found)} and this version needs schema {head()}, but its login may not "
            "change that; set database.owner_url to its owner's, and run `reelabel database upgrade`."
        ) from None


def check_schema(engine: Engine) -> None:
    """Check that a database has exactly this version's schema, and change nothing.

    Raises:
        ConfigurationError: It is older, was never prepared, or has a revision that this version does not know.
        DatabaseUnavailableError: Postgres did not answer.
    """
    found = _revision(engine)
    _refuse_unknown(found)
    if found != head():
        raise ConfigurationError(
            f"The database has {_described(found)}, but this version needs schema {head()}; "
            "run `reelabel database upgrade`, or start a run, which upgrades it too."
        )


def _described(revision: str | None) -> str:
    return f"schema {revision}" if revision else "no tables of Reelabel"


def _revision(engine: Engine) -> str | None:
    with database_errors(), engine.connect() as connection:
        return current(connection)


def _refuse_unknown(found: str | None) -> None:
    if found and found not in revisions():
        raise ConfigurationError(
            f"The database has schema {found}, which this version, with schema {head()}, does not know; update "
            "Reelabel, or, where the database was made before the first release, create it anew."
        )
