"""A database of tests is used again only if it is as a new one."""

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.databases import Databases


@pytest.fixture
def url_of(database_url):
    return lambda name: make_url(database_url).set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def databases(database_url, url_of, tmp_path):
    """Copies of the test's own database."""
    with psycopg.connect(url_of("postgres"), autocommit=True) as administrator:
        databases = Databases(administrator, make_url(database_url).database, url_of, tmp_path / "lock")
        yield databases
        databases.close()


@pytest.fixture
def use(databases, url_of):
    """Borrow a database for a statement; return its object id, by which it is known under any name."""

    def run(statement):
        with databases.lend() as name, psycopg.connect(url_of(name), autocommit=True) as connection:
            [oid] = connection.execute("SELECT oid FROM pg_database WHERE datname = %s", [name]).fetchone()
            return oid, connection.execute(statement.replace("DATABASE it", f"DATABASE {name}"))

    return run


@pytest.mark.parametrize(
    "change",
    [
        "REVOKE CONNECT ON DATABASE it FROM PUBLIC",
        "ALTER DATABASE it CONNECTION LIMIT 2",
        "ALTER DATABASE it SET transaction_timeout = '1ms'",
        "ALTER SEQUENCE reelabel.fence INCREMENT 2",
        "DROP TABLE public.reelabel_version",
    ],
)
def test_a_database_that_was_changed_is_not_lent_again(use, change):
    changed, _ = use(change)

    assert use("SELECT")[0] != changed


def test_a_database_is_lent_again_with_its_sequences_restarted(use):
    first, _ = use("SELECT nextval('reelabel.fence')")
    again, fence = use("SELECT nextval('reelabel.fence')")

    assert again == first
    assert fence.fetchone() == (1,)


def test_a_database_is_lent_again_with_its_tables_emptied(use):
    fill = "INSERT INTO reelabel.spec (spec_id, body) VALUES ('s', '{}')"
    first, _ = use(fill)
    again, _ = use(fill)  # would collide
    last, rows = use("SELECT * FROM reelabel.spec")

    assert first == again == last
    assert rows.fetchall() == []
