"""`reelabel database`: on the user's own Postgres, by the logins that are set."""

import os
import secrets

import psycopg
import pytest
from sqlalchemy.engine import make_url

from infra.database.connect import Login, connected
from infra.embedded import export
from infra.settings import Settings
from sql.migrate import downgrade
from sql.roles import ROLES
from tasks.database.schema import check_schema
from tests.command_line import reelabel


@pytest.fixture
def environment(tmp_path):
    """A home folder that no service was ever started in."""
    return os.environ | export(Settings(home=tmp_path / "home"))


def with_login(environment, login, url):
    return environment | {f"REELABEL_DATABASE_{login.upper()}": url}


def test_the_owner_s_login_alone_upgrades_its_own_database(environment, database, tmp_path):
    owner = database.owner_url.get_secret_value()
    downgrade(owner)

    upgraded = reelabel(with_login(environment, Login.OWNER, owner), "database", "upgrade")

    assert upgraded.returncode == 0, upgraded.stderr
    assert f"The database {make_url(owner).database} on 127.0.0.1:" in upgraded.stdout
    with connected(database) as writer:
        check_schema(writer)
    assert not (tmp_path / "home" / "postgres").exists()


@pytest.fixture
def bare_database(database_url):
    """URL of an administrator for a database in which nothing was ever done."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(database_url, autocommit=True) as administrator:
        administrator.execute(f'CREATE DATABASE "{name}"')
        yield make_url(database_url).set(database=name).render_as_string(hide_password=False)
        administrator.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def test_the_owner_s_login_alone_creates_the_roles_in_its_own_database(environment, bare_database, tmp_path):
    made = reelabel(with_login(environment, Login.OWNER, bare_database), "database", "roles")

    assert made.returncode == 0, made.stderr
    assert f"The database {make_url(bare_database).database} on 127.0.0.1:" in made.stdout
    with psycopg.connect(bare_database) as administrator:
        found = administrator.execute("SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'reelabel'")
        assert found.fetchone() == (ROLES[0],)
    assert not (tmp_path / "home" / "postgres").exists()


def test_a_reader_s_login_alone_reads_its_own_database(environment, database, tmp_path):
    read = reelabel(with_login(environment, Login.READER, database.reader_url.get_secret_value()), "results")

    assert "No run" in read.stderr
    assert str(tmp_path) not in read.stderr
    assert not (tmp_path / "home" / "postgres").exists()


@pytest.mark.parametrize("login", [Login.OWNER, Login.READER])
def test_what_writes_refuses_to_go_without_the_writer_s_login(environment, database, login, tmp_path):
    url = getattr(database, login).get_secret_value()
    downgrade(database.owner_url.get_secret_value())
    store = {"REELABEL_STORE_URI": (tmp_path / "store").as_uri()}

    refused = reelabel(with_login(environment, login, url) | store, "prepare")

    assert refused.returncode == 2
    assert f"database.url is not set, only database.{login}; set it to the login that writes rows." in refused.stderr
    assert not (tmp_path / "home" / "postgres").exists()
    with psycopg.connect(database.owner_url.get_secret_value()) as owner:
        assert owner.execute("SELECT to_regclass('reelabel.run')").fetchone() == (None,)
