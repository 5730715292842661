"""A database is backed up and restored by the documented logins, none of which is a superuser's."""

import os
import secrets
import stat
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from zipfile import ZIP_DEFLATED, ZipFile

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.engine import make_url

from infra.database.connect import Role, connected
from infra.settings import DatabaseSettings
from reelabel.errors import ConfigurationError, DiskFullError
from sql.migrate import head
from sql.roles import ROLES, create_roles
from tasks.database import backup
from tasks.database.backup import restore_backup, write_backup
from tasks.database.schema import check_schema, upgrade_schema
from tasks.results.audit import audit_jobs
from tasks.results.write import ShardWriter
from tests.results.conftest import run
from tests.results.rows import SCOPE, failure, job, result

__all__ = ["run"]

JOBS = [job(name) for name in "abc"]
USERS = dict(zip((Role.OWNER, Role.WRITER, Role.READER), ("keeper", "nightly", "curious"), strict=True))


def ignore(_):
    """Do not show progress."""


@pytest.fixture
def administrator(database_url):
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def logins(administrator, database_url):
    """The logins of docs/deployment.md, for any database of this server."""
    suffix = secrets.token_hex(4)
    users = {login: f"{user}_{suffix}" for login, user in USERS.items()}
    for user, role in zip(users.values(), ROLES, strict=True):
        administrator.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret' IN ROLE {role}")
    url = make_url(database_url).set(password="secret")

    def of(database):
        urls = {login: url.set(username=user, database=database) for login, user in users.items()}
        return DatabaseSettings(**{name: each.render_as_string(hide_password=False) for name, each in urls.items()})

    return of


@pytest.fixture
def source(logins, db, run):
    """A database with a label, a label that replaced another one, and a failure."""
    ShardWriter(db, run).write(results=[result(JOBS[0]), result(JOBS[1])], failures=[failure(JOBS[2])])
    changed = result(JOBS[1], probabilities=(0.1 + 0.2, 1 - (0.1 + 0.2)))
    ShardWriter(db, run).write(results=[changed], failures=[])
    with db.begin() as connection:
        connection.execute(sqlalchemy.text("SELECT setval('reelabel.fence', 41)"))
    return logins(db.url.database)


@contextmanager
def new_database(administrator):
    name = f"restored_{secrets.token_hex(4)}"
    administrator.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    with psycopg.connect(administrator.info.dsn, dbname=name, password=administrator.info.password) as connection:
        create_roles(connection)
    yield name
    administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def target(logins, administrator):
    """A new database with the roles, and nothing else."""
    with new_database(administrator) as name:
        yield logins(name)


def contents(database):
    """All rows of all tables, and where the sequences are."""
    with connected(database, Role.OWNER) as owner, owner.connect() as connection:
        tables = sqlalchemy.inspect(connection).get_table_names(schema="reelabel")
        rows = {
            table: sorted(map(str, connection.execute(sqlalchemy.text(f"SELECT t::text FROM reelabel.{table} t"))))
            for table in tables
        }
        counted = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'reelabel' ORDER BY 1"
        return rows, connection.execute(sqlalchemy.text(counted)).all()


def back_up(database, file, login=Role.OWNER):
    with connected(database, login) as engine:
        return write_backup(engine, file, notify=ignore)


def restore(database, file):
    with connected(database, Role.OWNER) as owner:
        return restore_backup(owner, file, notify=ignore)


def test_a_backup_takes_as_long_as_it_needs_whatever_limit_a_login_has(db, run, tmp_path):
    ShardWriter(db, run).write(results=[result(JOBS[0])], failures=[])
    with db.begin() as connection:
        connection.execute(sqlalchemy.text(f"ALTER DATABASE {db.url.database} SET transaction_timeout = '50ms'"))
    db.dispose()

    assert write_backup(db, tmp_path / "reelabel.zip", notify=lambda _: time.sleep(0.1)) > 0


@pytest.mark.parametrize(("login", "block_bytes"), [(Role.OWNER, 1024**2), (Role.WRITER, 200)])
def test_a_new_database_gets_every_row_and_its_own_logins_go_on(
    source, target, tmp_path, login, run, block_bytes, monkeypatch
):
    monkeypatch.setattr(backup, "_BLOCK_BYTES", block_bytes)
    file, notes = tmp_path / "reelabel.zip", []
    rows = back_up(source, file, login)
    with connected(target, Role.OWNER) as owner:
        assert restore_backup(owner, file, notify=notes.append) == rows

    assert contents(target) == contents(source)
    assert notes[-1] == f"{rows} of {rows} rows"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with connected(target, Role.READER) as reader, reader.connect() as connection:
        check_schema(reader)
        assert connection.execute(sqlalchemy.text("SELECT count(*) FROM reelabel.job_state")).scalar() == 3
    with connected(target) as writer:
        assert audit_jobs(writer, SCOPE, jobs=JOBS).is_reconciled
        with writer.begin() as connection:
            assert connection.execute(sqlalchemy.text("SELECT nextval('reelabel.fence')")).scalar() == 42
        ShardWriter(writer, run).write(results=[result(JOBS[0])], failures=[])  # keeps the label that it replaces


def test_tables_are_no_obstacle_but_rows_are(source, target, tmp_path):
    back_up(source, tmp_path / "b")
    with connected(target, Role.OWNER) as owner:
        upgrade_schema(owner)

    restore(target, tmp_path / "b")
    with pytest.raises(ConfigurationError, match=r"is not empty: \w+ has rows; restore the backup into a new one"):
        restore(target, tmp_path / "b")

    assert contents(target) == contents(source)


def test_of_two_restores_at_once_one_is_refused(source, target, tmp_path):
    back_up(source, tmp_path / "b")
    with connected(target, Role.OWNER) as owner:
        upgrade_schema(owner)
    ended = []

    def attempt():
        try:
            ended.append(restore(target, tmp_path / "b"))
        except ConfigurationError as error:
            ended.append(error.message)

    threads = [Thread(target=attempt) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted("is not empty" in str(each) for each in ended) == [False, True]
    assert contents(target) == contents(source)


def test_a_login_without_the_rights_is_told_which_has_them(source, target, tmp_path):
    message = r"curious_\w+ may not read reelabel\.\w+; for a backup, set database\.owner_url to the login that owns"
    with pytest.raises(ConfigurationError, match=message):
        back_up(source, tmp_path / "b", Role.READER)
    assert list(tmp_path.iterdir()) == []

    back_up(source, tmp_path / "b")
    with connected(target) as writer, pytest.raises(ConfigurationError, match=r"set database\.owner_url"):
        restore_backup(writer, tmp_path / "b", notify=ignore)


def test_a_database_without_tables_is_not_backed_up(target, tmp_path):
    with pytest.raises(ConfigurationError, match="has no Reelabel tables, so there is nothing to back up"):
        back_up(target, tmp_path / "b")


def rewritten(file, change):
    """Change the members of a backup."""
    with ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def cut_short(file):
    file.write_bytes(file.read_bytes()[:-100])


def flipped(file):
    with ZipFile(file) as archive:
        member = archive.getinfo("result")
    data = bytearray(file.read_bytes())
    data[member.header_offset + member.compress_size] ^= 0xFF
    file.write_bytes(data)


def with_flag(flag):
    """Return a function that sets a flag of every member, in its header and in the directory."""

    def change(file):
        data = bytearray(file.read_bytes())
        with ZipFile(file) as archive:
            at = archive.start_dir
            for member in archive.infolist():
                data[member.header_offset + 6] |= flag
                data[at + 8] |= flag
                at += 46 + len(member.filename) + len(member.extra)
        file.write_bytes(data)

    return change


DAMAGES = [
    cut_short,
    flipped,
    with_flag(0x01),  # needs a password
    with_flag(0x20),  # a patch of another file
    lambda file: file.write_text("job_id,label"),
    lambda file: file.write_bytes(b""),
    lambda file: rewritten(file, lambda members: members.pop("backup.json")),
    lambda file: rewritten(file, lambda members: members.update({"backup.json": b"[]"})),
    lambda file: rewritten(file, lambda members: members.pop("failure")),
    lambda file: rewritten(file, lambda members: members.update(result=members["result"] + b"x\n")),
    lambda file: rewritten(file, lambda members: members.update(result=members["result"] * 2)),
]


def test_a_damaged_backup_restores_nothing(source, target, tmp_path):
    file = tmp_path / "b"
    back_up(source, file)
    whole = file.read_bytes()
    for damage in DAMAGES:
        file.write_bytes(whole)
        damage(file)

        with pytest.raises(ConfigurationError, match="is damaged, or no backup of"):
            restore(target, file)

    newer = '{"revision": "9999", "rows": {}, "sequences": {}}'
    rewritten(file, lambda members: members.update({"backup.json": newer}))
    with pytest.raises(ConfigurationError, match="has schema 9999, which is unknown to this version; restore it with"):
        restore(target, file)
    assert not any(contents(target)[0].values())


def test_a_backup_takes_the_place_of_files_only(source, tmp_path):
    for path in (Path("/dev/null"), tmp_path):
        with pytest.raises(ConfigurationError, match="is not a file; name one"):
            back_up(source, path)


def test_a_backup_that_does_not_fit_leaves_the_last_one(source, tmp_path, monkeypatch):
    file = tmp_path / "b"
    back_up(source, file)
    before = file.read_bytes()

    def refuse(_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(DiskFullError, match=f"The disk of {tmp_path}"):
        back_up(source, file)

    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_backup_is_of_one_moment(source, tmp_path, target, db):
    """Rows that are written while it is made are in it with all that belongs to them, or not at all."""
    file = tmp_path / "b"
    added = []

    def add(_):
        if not added:
            added.append(1)
            with db.begin() as connection:
                connection.execute(sqlalchemy.text("INSERT INTO reelabel.spec (spec_id, body) VALUES ('later', '{}')"))
                connection.execute(sqlalchemy.text("UPDATE reelabel.run SET spec_id = 'later'"))

    with connected(source, Role.OWNER) as owner:
        write_backup(owner, file, notify=add)
    restore(target, file)

    with ZipFile(file) as archive:
        assert b"later" not in archive.read("spec") + archive.read("run")
    assert head() in ZipFile(file).read("backup.json").decode()
