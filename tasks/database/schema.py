"""Upgrade and check of a database's schema."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg.errors import InsufficientPrivilege
from sqlalchemy.exc import ProgrammingError

from infra.database.connect import Role, connected, database_errors
from reelabel.errors import ConfigurationError
from sql.migrate import current, head, revisions, upgrade

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from infra.settings import DatabaseSettings


def prepare_database(settings: DatabaseSettings) -> None:
    """Upgrade a database with the owner's login, and check that the writer's login finds the new schema.

    Raises:
        ConfigurationError: As of `upgrade_schema` and `check_schema`.
    """
    with connected(settings, Role.OWNER) as owner, connected(settings) as writer:
        upgrade_schema(owner)
        check_schema(writer)


def upgrade_schema(engine: Engine, revision: str | None = None) -> None:
    """Upgrade a database, by default to this version's schema; safe to call repeatedly and concurrently.

    Raises:
        ConfigurationError: The database has a revision unknown to this version or another encoding than UTF-8, or the
            login lacks the rights.
    """
    current, target = revision_of(engine), revision or head()
    if current == target:
        return  # without the owner's rights, which runs do not need
    with database_errors(), _refusal_explained(current):
        upgrade(engine.url.render_as_string(hide_password=False), target)


@contextmanager
def _refusal_explained(found: str | None) -> Iterator[None]:
    try:
        yield
    except ProgrammingError as error:
        if not isinstance(error.orig, InsufficientPrivilege):
            raise
        raise ConfigurationError(
            f"The database has {_described(found)}, this version needs schema {head()}, and the login may not upgrade "
            "it; set database.owner_url to the owner's URL, and run `reelabel database upgrade`."
        ) from None


def check_schema(engine: Engine) -> None:
    """Raise ConfigurationError if a database does not have this version's schema, or is not in UTF-8."""
    found = revision_of(engine)
    if found != head():
        raise ConfigurationError(
            f"The database has {_described(found)}, but this version needs schema {head()}; "
            "run `reelabel database upgrade`, or start a run, which also upgrades it."
        )


def revision_of(engine: Engine) -> str | None:
    """Return the revision of a database's schema; None if it has no tables of ours.

    Raises:
        ConfigurationError: The revision is unknown to this version, or the encoding is not UTF-8.
    """
    with database_errors(), engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        encoding = driver.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise ConfigurationError(
                f"The database {engine.url.database} has the encoding {encoding}, which cannot hold every text; create "
                "one with the encoding UTF8, and name it in database.url."
            )
        found = current(connection)
    if found and found not in revisions():
        raise ConfigurationError(
            f"The database has schema {found}, which is unknown to this version, whose schema is {head()}; upgrade "
            "Reelabel, or, if the database was created before the first release, recreate it: the embedded one by "
            "`reelabel down` and removing its home folder (.reelabel, unless REELABEL_HOME is set)."
        )
    return found


def _described(revision: str | None) -> str:
    return f"schema {revision}" if revision else "no Reelabel tables"
