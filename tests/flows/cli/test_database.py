"""`reelabel database`: on the user's own Postgres, by the logins that are set."""

import os
import secrets

import polars as pl
import psycopg
import pytest
from sqlalchemy.engine import make_url

from infra.database.connect import Role, connected
from infra.embedded import ServiceName, export, running
from infra.embedded.home import Home
from infra.embedded.postgres import Postgres
from infra.settings import Settings
from sql.migrate import downgrade
from sql.roles import ROLES
from tasks.database.schema import check_schema
from tests.clips import make_clip
from tests.command_line import reelabel

__all__ = ["make_clip"]


@pytest.fixture
def environment(tmp_path):
    """A home folder that no service was ever started in."""
    return os.environ | export(Settings(home=tmp_path / "home"))


def url_of(url):
    return url.render_as_string(hide_password=False)


def clean(environment):
    """Leave out the logins of the database."""
    return {name: value for name, value in environment.items() if not name.startswith("REELABEL_DATABASE_")}


def with_login(environment, login, url):
    return environment | {f"REELABEL_DATABASE_{login.upper()}": url}


def test_the_owners_login_alone_upgrades_its_own_database(environment, database, tmp_path):
    owner = database.owner_url.get_secret_value()
    downgrade(owner)

    upgraded = reelabel(with_login(environment, Role.OWNER, owner), "database", "upgrade")

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


def test_the_owners_login_alone_creates_the_roles_in_its_own_database(environment, bare_database, tmp_path):
    created = reelabel(with_login(environment, Role.OWNER, bare_database), "database", "roles")

    assert created.returncode == 0, created.stderr
    assert f"The database {make_url(bare_database).database} on 127.0.0.1:" in created.stdout
    with psycopg.connect(bare_database) as administrator:
        found = administrator.execute("SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'reelabel'")
        assert found.fetchone() == (ROLES[0],)
    assert not (tmp_path / "home" / "postgres").exists()


def test_a_login_that_cannot_create_roles_is_refused_with_what_to_set(environment, database):
    refused = reelabel(with_login(environment, Role.OWNER, database.url.get_secret_value()), "database", "roles")

    assert refused.returncode == 2, refused.stderr
    assert "This login cannot create roles: permission denied" in refused.stderr
    assert "set database.owner_url to the URL of a superuser" in " ".join(refused.stderr.split())


def test_a_reader_s_login_alone_reads_its_own_database(environment, database, tmp_path):
    read = reelabel(with_login(environment, Role.READER, database.reader_url.get_secret_value()), "results")

    assert "No run" in read.stderr
    assert str(tmp_path) not in read.stderr
    assert not (tmp_path / "home" / "postgres").exists()


@pytest.mark.parametrize("login", [Role.OWNER, Role.READER])
def test_commands_that_write_need_the_login_of_the_writer(environment, database, login, tmp_path):
    url = getattr(database, login).get_secret_value()
    downgrade(database.owner_url.get_secret_value())
    store = {"REELABEL_STORE_URI": (tmp_path / "store").as_uri()}

    refused = reelabel(with_login(environment, login, url) | store, "prepare")

    assert refused.returncode == 2
    assert f"database.url is not set, only database.{login}; set it to the login that writes rows." in refused.stderr
    assert not (tmp_path / "home" / "postgres").exists()
    with psycopg.connect(database.owner_url.get_secret_value()) as owner:
        assert owner.execute("SELECT to_regclass('reelabel.run')").fetchone() == (None,)


@pytest.mark.system
def test_after_a_restore_on_a_new_server_a_repeated_run_answers_nothing_again(served, make_clip, tmp_path):
    jobs = {"job_id": ["a", "b"], "video_uri": [str(make_clip()), str(tmp_path / "gone.mp4")], "prompt": ["?"] * 2}
    manifest, file = str(tmp_path / "jobs.parquet"), str(tmp_path / "reelabel.zip")
    pl.DataFrame(jobs | {"choices": [["yes", "no"]] * 2}).write_parquet(manifest)
    assert reelabel(served, "classify", manifest).returncode == 1  # one of the videos is missing
    labels = reelabel(served, "results", "--format", "csv").stdout

    backed_up = reelabel(served, "database", "backup", file)
    with running(Settings(home=tmp_path / "home"), wanted=frozenset({ServiceName.POSTGRES})) as started:
        new = make_url(started.database.url.get_secret_value()).set(database="labels")
        superuser = make_url(Postgres(Home(started.home)).administrator_url(new.port)).set(database="labels")
        with psycopg.connect(url_of(superuser.set(database="reelabel")), autocommit=True) as connection:
            connection.execute("CREATE DATABASE labels")
            assert reelabel(with_login(served, Role.OWNER, url_of(superuser)), "database", "roles").returncode == 0
            for user, role in zip(("keeper", "nightly", "curious"), ROLES, strict=True):
                connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret' IN ROLE {role}")
        new = new.set(password="secret")
        owner = with_login(clean(served), Role.OWNER, url_of(new.set(username="keeper")))

        restored = reelabel(owner, "database", "restore", file)
        twice = reelabel(owner, "database", "restore", file)
        logins = {Role.WRITER: "nightly", Role.READER: "curious"}
        for login, user in logins.items():
            served = with_login(served, login, url_of(new.set(username=user)))
        again = reelabel(served, "classify", manifest)
        audited = reelabel(served, "audit", "last")

        assert (backed_up.returncode, restored.returncode, twice.returncode) == (0, 0, 2)
        assert "is not empty" in twice.stderr
        assert "2 jobs" in again.stdout, again
        assert reelabel(served, "results", "--format", "csv").stdout == labels
        assert audited.returncode == 0
