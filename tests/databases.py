"""Migrated databases of tests: to copy a template takes ten times as long as to empty a copy."""

from __future__ import annotations

import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg
from psycopg.errors import ObjectInUse, UndefinedTable

from sql.roles import OWNER
from tests.shared import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# What a statement that changes a schema, its version or rights in it writes to.
_CATALOGS = [
    *("pg_attrdef", "pg_attribute", "pg_class", "pg_constraint", "pg_default_acl", "pg_depend", "pg_extension"),
    *("pg_index", "pg_policy", "pg_proc", "pg_rewrite", "pg_statistic_ext", "pg_trigger", "pg_type"),
    "(SELECT xmin FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_')",
    (
        "(SELECT xmin FROM pg_db_role_setting WHERE setdatabase = "
        "(SELECT oid FROM pg_database WHERE datname = current_database()))"
    ),
    "public.reelabel_version",
]
_SCHEMA = " UNION ALL ".join(f"SELECT count(*), max(xmin::text::bigint) FROM {catalog} t" for catalog in _CATALOGS)
_FILLED = (
    "SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE relkind = 'r' AND nspname = 'reelabel' AND pg_relation_size(pg_class.oid) > 0"
)
_END = "SELECT pg_terminate_backend(pid, 10_000) FROM pg_stat_activity WHERE datname = %s"


class Databases:
    """Databases that are lent one at a time, and renamed afterwards, so that what is left of a test finds none."""

    def __init__(self, administrator: psycopg.Connection, template: str, url_of: Callable[[str], str], lock: Path):
        """Copy a template, over a connection to its server; `lock` is held by who uses it, which is one at a time."""
        self._administrator, self._template, self._url_of, self._lock = administrator, template, url_of, lock
        self._spare: list[tuple[str, object]] = []
        with locked(lock), psycopg.connect(url_of(template)) as connection:
            self._copied = connection.execute(_SCHEMA).fetchall()

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Yield the name of a migrated, empty database, which is used again if its schema is then as it was."""
        if self._spare:
            name, schema = self._spare.pop()
        else:
            name, schema = _new_name(), self._copied
            with locked(self._lock):
                self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{self._template}" OWNER "{OWNER}"')
        yield name
        self._administrator.execute(_END, [name])
        renamed = _new_name()
        try:
            self._execute(f'ALTER DATABASE "{name}" RENAME TO "{renamed}"')
        except ObjectInUse:  # by who has connected again
            self._drop(name)
        else:
            self._empty(renamed, schema)

    def _empty(self, name: str, schema: object) -> None:
        is_unchanged = False
        with psycopg.connect(self._url_of(name)) as connection, suppress(UndefinedTable):
            is_unchanged = connection.execute(_SCHEMA).fetchall() == schema
            if is_unchanged and (filled := [table for (table,) in connection.execute(_FILLED)]):
                connection.execute(f"TRUNCATE {', '.join(filled)} RESTART IDENTITY CASCADE".encode())
                schema = connection.execute(_SCHEMA).fetchall()  # as new files are entered there, too
        if is_unchanged:
            self._spare.append((name, schema))
        else:
            self._drop(name)

    def close(self) -> None:
        """Drop those that are left."""
        for name, _ in self._spare:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        self._administrator.execute(statement.encode())


def _new_name() -> str:
    return f"test_{secrets.token_hex(6)}"
