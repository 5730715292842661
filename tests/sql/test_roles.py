import secrets
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from sqlalchemy.engine import make_url

from infra.database.connect import Role, connected
from infra.settings import DatabaseSettings
from reelabel.errors import ConfigurationError
from sql.migrate import downgrade, upgrade
from sql.roles import ROLES, create_roles
from tasks.database.schema import prepare_database, upgrade_schema


@contextmanager
def logged_in(database, login):
    url = getattr(database, login).get_secret_value()
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def administrator(database_url):
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA payroll")
        connection.execute("CREATE TABLE payroll.salary (name text)")
        yield connection
        connection.execute("DROP SCHEMA payroll CASCADE")


WRITES = [
    "INSERT INTO reelabel.spec (spec_id, body) VALUES ('s', '{}')",
    "UPDATE reelabel.result SET label = 'x'",
    "DELETE FROM reelabel.failure",
]
CHANGES = [
    "DROP TABLE reelabel.result",
    "TRUNCATE reelabel.result",
    "ALTER TABLE reelabel.result ADD COLUMN mine text",
    "CREATE TABLE reelabel.mine (id text)",
    "CREATE TABLE public.mine (id text)",
    "CREATE SCHEMA mine",
    "CREATE INDEX mine ON reelabel.result (label)",
    "CREATE ROLE mine",
    "UPDATE public.reelabel_version SET version_num = '9999'",
    "SET ROLE reelabel_owner",
    "COPY reelabel.result TO PROGRAM 'cat'",
]
FOREIGN = ["SELECT * FROM payroll.salary", "SELECT * FROM pg_authid", "SELECT pg_read_file('/etc/passwd')"]


@pytest.mark.parametrize("statement", [*WRITES, *CHANGES, *FOREIGN, "SET ROLE reelabel_writer"])
@pytest.mark.usefixtures("administrator")
def test_the_reader_can_only_read_rows(database, statement):
    with logged_in(database, Role.READER) as reader:
        assert reader.execute("SELECT count(*) FROM reelabel.job_state").fetchone() == (0,)
        with pytest.raises(InsufficientPrivilege):
            reader.execute(statement)


@pytest.mark.parametrize("statement", [*CHANGES, *FOREIGN])
@pytest.mark.usefixtures("administrator")
def test_the_writer_cannot_create_alter_or_drop(database, statement):
    with logged_in(database, Role.WRITER) as writer:
        for write in WRITES:
            writer.execute(write)
        with pytest.raises(InsufficientPrivilege):
            writer.execute(statement)


@pytest.mark.parametrize("statement", [*FOREIGN, "CREATE ROLE mine", "DROP SCHEMA payroll CASCADE"])
@pytest.mark.usefixtures("administrator")
def test_the_owner_s_rights_end_with_its_own_tables(database, statement):
    with logged_in(database, Role.OWNER) as owner, pytest.raises(InsufficientPrivilege):
        owner.execute(statement)


def test_tables_of_later_migrations_get_the_same_rights(database):
    with logged_in(database, Role.OWNER) as owner:
        owner.execute("CREATE TABLE reelabel.later (id bigint GENERATED ALWAYS AS IDENTITY, word text)")
        owner.execute("CREATE SEQUENCE reelabel.counter")
    with logged_in(database, Role.WRITER) as writer:
        writer.execute("INSERT INTO reelabel.later (word) VALUES ('x')")
        writer.execute("SELECT nextval('reelabel.counter')")
    with logged_in(database, Role.READER) as reader:
        assert reader.execute("SELECT word FROM reelabel.later").fetchone() == ("x",)
        with pytest.raises(InsufficientPrivilege):
            reader.execute("SELECT nextval('reelabel.counter')")


def test_the_owner_migrates_down_and_up_and_the_others_keep_their_rights(database):
    url = database.owner_url.get_secret_value()

    downgrade(url)
    prepare_database(database)

    with logged_in(database, Role.WRITER) as writer:
        writer.execute(WRITES[0])
    with logged_in(database, Role.READER) as reader:
        assert reader.execute("SELECT count(*) FROM reelabel.spec").fetchone() == (1,)


def test_a_login_without_the_rights_to_upgrade_is_told_which_has_them(database):
    downgrade(database.owner_url.get_secret_value())
    refused = pytest.raises(ConfigurationError, match=r"has no Reelabel tables.* the login may not upgrade it; set")
    with connected(database) as writer, refused:
        upgrade_schema(writer)

    prepare_database(database)
    prepare_database(DatabaseSettings(url=database.url))  # the schema is current, so no rights are needed


@pytest.fixture
def owned_database(services, administrator):
    """URLs of a database for its owner, with CREATEROLE but no superuser, and for a login without rights."""
    owner, other, name = (f"{word}_{secrets.token_hex(4)}" for word in ("owner", "other", "owned_database"))
    administrator.execute(f"CREATE ROLE {owner} LOGIN CREATEROLE PASSWORD 'secret'")
    # The roles on this server were created by another login, so that the owner must be granted them.
    administrator.execute(f"GRANT {', '.join(ROLES)} TO {owner} WITH ADMIN OPTION")
    administrator.execute(f"CREATE ROLE {other} LOGIN PASSWORD 'secret'")
    administrator.execute(f"CREATE DATABASE {name} OWNER {owner}")
    url = make_url(services.database.url.get_secret_value()).set(database=name, password="secret")
    yield [url.set(username=user).render_as_string(hide_password=False) for user in (owner, other)]
    administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_database_owner_with_createrole_transfers_the_tables(owned_database):
    owner_url, other_url = owned_database
    upgrade(owner_url)

    for _ in range(2):
        with psycopg.connect(owner_url) as owner:
            create_roles(owner)

    upgrade(owner_url)
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owners = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'reelabel'::regnamespace"
        assert owner.execute(owners).fetchall() == [(ROLES[0],)]
        owner.execute(f"GRANT reelabel_writer TO {make_url(other_url).username}")
    with psycopg.connect(other_url, autocommit=True) as other:
        other.execute(WRITES[0])
        with pytest.raises(InsufficientPrivilege):
            other.execute("DROP TABLE reelabel.result")


def test_a_login_without_createrole_changes_nothing(owned_database):
    with psycopg.connect(owned_database[1]) as other, pytest.raises(InsufficientPrivilege):
        create_roles(other)
