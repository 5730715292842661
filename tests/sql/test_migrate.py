import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy
from sqlalchemy import inspect

from infra.database import connect
from infra.settings import DatabaseSettings
from sql.migrate import current, downgrade, head, revisions, upgrade
from tasks.results.read import read_failures, read_results
from tasks.results.runs import close_run
from tasks.results.writer import ShardWriter
from tests.results.conftest import engine, run
from tests.results.rows import SPEC, failure, job, result

__all__ = ["engine", "run"]

_ABOUT_RUNS = {"spec", "run", "run_spec", "plan", "shard", "arrival"}
TABLES = _ABOUT_RUNS | {"route", "result", "failure", "calibration", "evaluation"}


def tables(url):
    engine = connect(DatabaseSettings(url=url))
    try:
        return set(inspect(engine).get_table_names(schema="reelabel"))
    finally:
        engine.dispose()


def test_migrations_go_down_and_up(database_url):
    assert tables(database_url) == TABLES

    downgrade(database_url)
    assert tables(database_url) == set()

    upgrade(database_url)
    assert tables(database_url) == TABLES


def test_rows_outlive_every_step_down_and_up_again(database_url, engine, run):
    """All the way down but for the first migration, without which there is nothing to keep rows in."""
    ShardWriter(engine, run).write(results=[result(job("a"))], failures=[failure(job("b"))])
    steps = sorted(revisions(), reverse=True)

    for revision in steps[1:]:
        downgrade(database_url, revision)
        with engine.connect() as connection:
            assert current(connection) == revision
            for table in ("result", "failure", "run", "spec"):
                rows = connection.execute(sqlalchemy.text(f"SELECT count(*) FROM reelabel.{table}"))
                assert rows.scalar_one() == 1, (revision, table)
    upgrade(database_url)

    assert read_results(engine, dataset="d", spec_id=SPEC.spec_id)["job_id"].to_list() == ["a"]
    assert read_failures(engine, dataset="d", spec_id=SPEC.spec_id)["job_id"].to_list() == ["b"]
    close_run(engine, run.run_id, state="done", message="")


def test_labels_that_stand_get_their_entropy(database_url, engine, run):
    choices = [(1.0, 0.0), (0.5, 0.5), (0.25, 0.75)]
    results = [result(job(str(number)), shares) for number, shares in enumerate(choices)]
    ShardWriter(engine, run).write(results=results, failures=[])

    downgrade(database_url, "0002")
    upgrade(database_url)

    rows = read_results(engine, dataset="d", spec_id=SPEC.spec_id)
    assert rows["entropy_nats"].to_list() == pytest.approx([one.answer.entropy_nats for one in results])
    assert rows["entropy_nats"].to_list() == pytest.approx([0, math.log(2), 0.5623], abs=1e-4)


def test_many_upgrades_at_once_leave_one_schema(database_url):
    downgrade(database_url)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(upgrade, [database_url] * 4))

    engine = connect(DatabaseSettings(url=database_url))
    with engine.connect() as connection:
        assert current(connection) == head() == "0015"
        assert connection.execute(sqlalchemy.text("SELECT count(*) FROM reelabel.result")).scalar_one() == 0
    engine.dispose()
