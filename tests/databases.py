"""Migrated databases of tests: a copy of the template is emptied and lent again, as to copy it takes longer."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg.errors import ObjectInUse

from sql.roles import OWNER
from tests.shared import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# What a statement that changes a schema, its version, or rights in it or to the database writes to.
_CATALOGS = [
    *("pg_attrdef", "pg_attribute", "pg_class", "pg_constraint", "pg_default_acl", "pg_depend", "pg_extension"),
    *("pg_index", "pg_policy", "pg_proc", "pg_rewrite", "pg_sequence", "pg_statistic_ext", "pg_trigger", "pg_type"),
    "(SELECT xmin FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_')",
    (
        "(SELECT xmin FROM pg_db_role_setting WHERE setdatabase = "
        "(SELECT oid FROM pg_database WHERE datname = current_database()))"
    ),
    "public.reelabel_version",
]
_STATE = " UNION ALL ".join(
    [
        *(f"SELECT count(*), max(xmin::text::bigint)::text FROM {catalog} t" for catalog in _CATALOGS),
        (
            "SELECT 1, (to_jsonb(d) - '{oid,datname,datfrozenxid,datminmxid}'::text[])::text "
            "FROM pg_database d WHERE datname = current_database()"
        ),
    ]
)
_FILLED = (
    "SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE relkind = 'r' AND nspname = 'reelabel' AND pg_relation_size(pg_class.oid) > 0"
)
_RESTART = (
    "SELECT setval(seqrelid, seqstart, false) FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid "
    "WHERE relnamespace = 'reelabel'::regnamespace"
)
_END = "SELECT pg_terminate_backend(pid, 10_000) FROM pg_stat_activity WHERE datname = %s"


class Databases:
    """Databases that are lent one at a time, and renamed afterwards, so that what is left of a test finds none."""

    def __init__(self, administrator: psycopg.Connection, template: str, url_of: Callable[[str], str], lock: Path):
        """Copy a template, over a connection to its server; `lock` is held by who uses it, which is one at a time."""
        self._administrator, self._template, self._url_of, self._lock = administrator, template, url_of, lock
        self._spare: list[tuple[str, object]] = []
        self._copied: object = None  # state of a new copy

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Yield the name of a migrated, empty database, used again unless its schema, rights or settings change."""
        name, state = self._spare.pop() if self._spare else self._copy()
        yield name
        self._administrator.execute(_END, [name])
        renamed = _new_name()
        try:
            self._execute(f'ALTER DATABASE "{name}" RENAME TO "{renamed}"')
        except ObjectInUse:  # by who has connected again
            self._drop(name)
        else:
            self._return(renamed, state)

    def _copy(self) -> tuple[str, object]:
        name = _new_name()
        with locked(self._lock):
            self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{self._template}" OWNER "{OWNER}"')
        if self._copied is None:
            with psycopg.connect(self._url_of(name)) as connection:
                self._copied = connection.execute(_STATE).fetchall()
        return name, self._copied

    def _return(self, name: str, before: object) -> None:
        try:
            state = self._empty(name, before)
        except psycopg.Error:  # such as a time-out that a test has set
            state = None
        if state is None:
            self._drop(name)
        else:
            self._spare.append((name, state))

    def _empty(self, name: str, before: object) -> object:
        """Empty the tables and restart the sequences; return the state, or None if a test has changed it."""
        with psycopg.connect(self._url_of(name)) as connection:
            if connection.execute(_STATE).fetchall() != before:
                return None
            connection.execute(_RESTART)
            if filled := [table for (table,) in connection.execute(_FILLED)]:
                connection.execute(f"TRUNCATE {', '.join(filled)} CASCADE".encode())
            return connection.execute(_STATE).fetchall()  # a table's new file is entered in it

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
