from concurrent.futures import ThreadPoolExecutor

import sqlalchemy
from sqlalchemy import inspect

from infra.database.connect import connected
from infra.settings import DatabaseSettings
from sql.migrate import current, downgrade, head, revisions, upgrade
from tasks.results.read import read_failures, read_results
from tasks.results.runs import open_run
from tasks.results.write import ShardWriter
from tests.results.conftest import run
from tests.results.rows import FACTS, SCOPE, SPEC, failure, job, result

__all__ = ["run"]

_ABOUT_RUNS = {"spec", "run", "run_spec", "plan", "shard", "arrival"}
_ROWS = {"result", "result_history", "failure", "chunk", "description", "description_chunk"}
_LIVE = {"live_session", "live_frames", "live_query"}
TABLES = _ABOUT_RUNS | _ROWS | _LIVE | {"route", "calibration", "evaluation"}
_OTHERS = sqlalchemy.text(
    "SELECT relname FROM pg_class WHERE relnamespace = 'reelabel'::regnamespace AND relkind IN ('v', 'S')"
)


def tables(url):
    with connected(DatabaseSettings(url=url)) as db:
        return set(inspect(db).get_table_names(schema="reelabel"))


def write_two_jobs(db, run):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[failure(job("b"))])


def test_migrations_go_down_and_up(database_url, db):
    assert tables(database_url) == TABLES

    downgrade(database_url)
    assert tables(database_url) == set()
    with db.connect() as connection:
        assert current(connection) is None
        assert connection.execute(_OTHERS).all() == []

    upgrade(database_url)
    assert tables(database_url) == TABLES


def test_rows_survive_every_downgrade_and_upgrade(database_url, db, run):
    """Downgrade to the first migration, below which there are no tables to keep rows in."""
    write_two_jobs(db, run)

    for revision in sorted(revisions(), reverse=True)[1:]:
        downgrade(database_url, revision)
        with db.connect() as connection:
            assert current(connection) == revision
            for table in ("result", "failure", "run", "spec"):
                rows = connection.execute(sqlalchemy.text(f"SELECT count(*) FROM reelabel.{table}"))
                assert rows.scalar_one() == 1, (revision, table)
    upgrade(database_url)

    assert read_results(db, SCOPE)["job_id"].to_list() == ["a"]
    assert read_failures(db, SCOPE)["job_id"].to_list() == ["b"]


def test_the_first_migration_is_reverted_and_repeated_on_a_database_with_rows(database_url, db, run):
    write_two_jobs(db, run)

    downgrade(database_url)
    upgrade(database_url)

    assert read_results(db, SCOPE).is_empty()
    open_run(db, run_id=run.run_id, spec=SPEC, facts=FACTS)
    write_two_jobs(db, run)
    assert read_results(db, SCOPE)["job_id"].to_list() == ["a"]


def test_the_version_is_found_whatever_the_search_path_of_a_login(database_url, db):
    with db.begin() as connection:
        connection.execute(sqlalchemy.text(f"ALTER DATABASE {db.url.database} SET search_path = reelabel"))

    for change in (upgrade, downgrade, upgrade):
        change(database_url)
        with connected(DatabaseSettings(url=database_url)) as other, other.connect() as connection:
            assert current(connection) == (None if change is downgrade else head())
    assert tables(database_url) == TABLES


def test_concurrent_upgrades_create_one_schema(database_url):
    downgrade(database_url)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(upgrade, [database_url] * 4))

    with connected(DatabaseSettings(url=database_url)) as db, db.connect() as connection:
        assert current(connection) == head()
        assert connection.execute(sqlalchemy.text("SELECT count(*) FROM reelabel.result")).scalar_one() == 0
