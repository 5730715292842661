"""Backups: the rows of all tables in COPY's text format, and the values of sequences, in a ZIP file.

Tables, roles and rights come from the migrations: the owner's login is enough to restore a backup, whatever the logins
of the new database are called. pg_dump is no alternative: our containers lack it, and it refuses newer servers.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import psycopg
import sqlalchemy
from psycopg.sql import SQL, Composed, Identifier

from infra.database.connect import database_errors, place_of, unlimited
from reelabel.disk import disk_errors
from reelabel.errors import ConfigurationError
from sql.migrate import revisions
from tasks.database.schema import revision_of, upgrade_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Engine

    Notify = Callable[[str], None]

_SCHEMA = "reelabel"
_FACTS = "backup.json"
_BLOCK_BYTES = 1024**2
# One snapshot of all tables.
_SNAPSHOT: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
_SETTINGS = unlimited(extra_float_digits="1")  # every digit of a number
_UNREADABLE = (
    "SELECT min(relname) FROM pg_class WHERE relnamespace = 'reelabel'::regnamespace AND CASE relkind "
    "WHEN 'S' THEN NOT has_sequence_privilege(oid, 'SELECT, USAGE') "
    "WHEN 'r' THEN NOT has_table_privilege(oid, 'SELECT') END"
)
_COUNTED = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'reelabel'"
_COUNT_ON = "SELECT setval(format('reelabel.%%I', %s::text), %s)"
_DAMAGED = (BadZipFile, NotImplementedError, KeyError, EOFError, zlib.error, psycopg.DataError, psycopg.IntegrityError)


class _Facts(NamedTuple):
    revision: str
    rows: dict[str, int]
    sequences: dict[str, int | None]


def write_backup(engine: Engine, file: Path, *, notify: Notify) -> int:
    """Write a database's rows to a file, which is replaced once all are written; return how many.

    `notify` is called with the progress from time to time.

    Raises:
        ConfigurationError: The database has no tables, or one that the login may not read; or `file` is not a file.
        DiskFullError: The backup does not fit.
    """
    if file.exists() and not file.is_file():
        raise ConfigurationError(f"{file} is not a file; name one to write the backup to.")
    revision, rows = revision_of(engine), dict[str, int]()
    if revision is None:
        raise ConfigurationError(f"{place_of(engine.url)} has no Reelabel tables, so there is nothing to back up.")
    with (
        disk_errors(file.absolute().parent),
        _replaced(file) as unfinished,
        ZipFile(unfinished, "w", ZIP_DEFLATED, compresslevel=3) as archive,
        database_errors(),
        engine.connect().execution_options(**_SNAPSHOT) as connection,
    ):
        driver = _driver(connection)
        driver.execute(_SETTINGS)
        _require_readable(driver)
        for table in _tables(connection):
            with archive.open(table, "w", force_zip64=True) as member:
                for copied in _copy_out(driver, table, member):
                    notify(f"{table}: {copied:,} rows")
            rows[table] = copied
        # Last, since sequences are not part of the snapshot, and must not be behind the rows.
        facts = _Facts(revision, rows, dict(driver.execute(_COUNTED).fetchall()))
        archive.writestr(_FACTS, json.dumps(facts._asdict()))
    return sum(rows.values())


def restore_backup(engine: Engine, file: Path, *, notify: Notify) -> int:
    """Write a backup's rows, all or none, to an empty database; return how many.

    Tables are created if there are none, and at the end upgraded to this version's schema. The login is the owner of
    the tables; `notify` is called with the progress from time to time.

    Raises:
        ConfigurationError: `file` is not a backup, or is of an unknown version; the database is not empty; or the login
            lacks the rights.
    """
    with _opened(file) as (archive, facts):
        if facts.revision not in revisions():
            raise ConfigurationError(
                f"{file} has schema {facts.revision}, which is unknown to this version; restore it with the version "
                "that made it."
            )
        found = revision_of(engine)
        if found not in {None, facts.revision}:
            raise ConfigurationError(
                f"{place_of(engine.url)} has schema {found}, the backup {facts.revision}; restore it into a new one."
            )
        upgrade_schema(engine, facts.revision)
        with database_errors(), engine.begin() as connection:
            _restore_rows(connection, archive, facts, notify=notify)
    upgrade_schema(engine)
    return sum(facts.rows.values())


def _restore_rows(connection: Connection, archive: ZipFile, facts: _Facts, *, notify: Notify) -> None:
    driver, tables = _driver(connection), _tables(connection)
    driver.execute(_SETTINGS)
    # Nobody else may write to them until it is done.
    driver.execute(SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(SQL(", ").join(map(_named, tables))))
    for table in tables:
        if driver.execute(SQL("SELECT FROM {} LIMIT 1").format(_named(table))).fetchone() is not None:
            raise ConfigurationError(
                f"{place_of(connection.engine.url)} is not empty: {table} has rows; restore the backup into a new one."
            )
    done, total = 0, sum(facts.rows.values())
    for table in tables:
        for share in _copy_in(driver, table, archive):
            notify(f"{done + int(share * facts.rows[table]):,} of {total:,} rows")
        done += facts.rows[table]
    for name, value in facts.sequences.items():
        if value is not None:
            driver.execute(_COUNT_ON, [name, value])


@contextmanager
def _replaced(file: Path) -> Iterator[IO[bytes]]:
    """Open a new file, which only its owner may read, and replace `file` by it at the end of the body."""
    unfinished = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with open(unfinished, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _opened(file: Path) -> Iterator[tuple[ZipFile, _Facts]]:
    try:
        with ZipFile(file) as archive:
            try:
                facts = _Facts(**json.loads(archive.read(_FACTS)))
            except (TypeError, ValueError, RuntimeError) as error:  # the last if a password is needed
                raise BadZipFile from error
            yield archive, facts
    except _DAMAGED as error:
        raise ConfigurationError(
            f"{file} is damaged, or no backup of `reelabel database backup`; no row was restored."
        ) from error


def _require_readable(driver: psycopg.Connection[Any]) -> None:
    [unreadable] = driver.execute(_UNREADABLE).fetchone() or [None]
    if unreadable:
        raise ConfigurationError(
            f"The login {driver.info.user} may not read {_SCHEMA}.{unreadable}; for a backup, set database.owner_url "
            "to the login that owns the tables."
        )


def _tables(connection: Connection) -> list[str]:
    found = sqlalchemy.inspect(connection).get_sorted_table_and_fkc_names(_SCHEMA)
    return [name for name, _ in found if name is not None]


def _copy_out(driver: psycopg.Connection[Any], table: str, target: IO[bytes]) -> Iterator[int]:
    rows, block = 0, bytearray()
    with driver.cursor() as cursor, cursor.copy(SQL("COPY {} TO STDOUT").format(_named(table))) as copy:
        for row in copy:
            block += row
            rows += 1
            if len(block) >= _BLOCK_BYTES:
                target.write(block)
                block.clear()
                yield rows
        target.write(block)
    yield rows


def _copy_in(driver: psycopg.Connection[Any], table: str, archive: ZipFile) -> Iterator[float]:
    size_bytes = archive.getinfo(table).file_size
    statement = SQL("COPY {} FROM STDIN").format(_named(table))
    with archive.open(table) as source, driver.cursor() as cursor, cursor.copy(statement) as copy:
        while block := source.read(_BLOCK_BYTES):
            copy.write(block)
            yield source.tell() / size_bytes


def _named(table: str) -> Composed:
    return SQL("{}").format(Identifier(_SCHEMA, table))


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    driver = connection.connection.driver_connection  # SQLAlchemy has no COPY
    assert isinstance(driver, psycopg.Connection)
    return driver
