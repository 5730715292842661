"""Migrates a database to this version's schema or an earlier one."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy
from alembic import command, op
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import make_url

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = Path(__file__).parent / "migrations"
# Key of the advisory lock that serializes concurrent upgrades; an arbitrary constant.
_LOCK = 0x7265656C

VERSION_TABLE = "reelabel_version"
# `sql/roles.sql` creates it in `public`.
_VERSION_SCHEMA = sqlalchemy.text(
    "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE relname = :name AND relkind = 'r' ORDER BY nspname <> 'public', nspname LIMIT 1"
)

# Create objects as the owner role, so that they belong to it and get its default privileges.
_AS_OWNER = sqlalchemy.text(
    "SELECT set_config('role', pg_get_userbyid(nspowner), true) FROM pg_namespace "
    "WHERE nspname = 'reelabel' AND pg_has_role(nspowner, 'MEMBER')"
)


def upgrade(url: str, revision: str = "head") -> None:
    """Upgrade a database to a later revision; safe to call repeatedly and concurrently."""
    with _connected(url) as connection:
        command.upgrade(_config(connection), revision)


def downgrade(url: str, revision: str = "base") -> None:
    with _connected(url) as connection:
        command.downgrade(_config(connection), revision)


def head() -> str:
    revision = _scripts().get_current_head()
    assert revision is not None
    return revision


def revisions() -> frozenset[str]:
    return frozenset(script.revision for script in _scripts().walk_revisions())


def current(connection: sqlalchemy.Connection) -> str | None:
    """Return a database's revision; None if it was never migrated."""
    opts = {"version_table": VERSION_TABLE, "version_table_schema": version_schema(connection)}
    return MigrationContext.configure(connection, opts=opts).get_current_revision()


def version_schema(connection: sqlalchemy.Connection) -> str | None:
    """Return the schema of the table that holds a database's revision, which may not be in the search path."""
    schema: str | None = connection.scalar(_VERSION_SCHEMA, {"name": VERSION_TABLE})
    return schema


def read_file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def execute_file(name: str) -> None:
    op.execute(read_file(name))


@contextmanager
def _connected(url: str) -> Iterator[sqlalchemy.Connection]:
    engine = sqlalchemy.create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    try:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            connection.execute(_AS_OWNER)
            yield connection
    finally:
        engine.dispose()


@cache
def _scripts() -> ScriptDirectory:
    """Return the migrations, which are compiled when they are read."""
    return ScriptDirectory.from_config(_config(None))


def _config(connection: sqlalchemy.Connection | None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_FOLDER))
    return config
