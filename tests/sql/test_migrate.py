import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy
from sqlalchemy import inspect

from infra.database import connect
from infra.settings import DatabaseSettings
from sql.migrate import current, downgrade, head, upgrade
from tasks.results.read import read_results
from tasks.results.write import write_shard
from tests.results.conftest import engine, run
from tests.results.rows import SPEC, job, result

__all__ = ["engine", "run"]


def tables(url):
    engine = connect(DatabaseSettings(url=url))
    try:
        return set(inspect(engine).get_table_names(schema="reelabel"))
    finally:
        engine.dispose()


def test_migrations_go_down_and_up(database_url):
    assert tables(database_url) == {"spec", "run", "result", "failure", "calibration"}

    downgrade(database_url)
    assert tables(database_url) == set()

    upgrade(database_url)
    assert tables(database_url) == {"spec", "run", "result", "failure", "calibration"}


def test_labels_that_stand_get_their_entropy(database_url, engine, run):
    choices = [(1.0, 0.0), (0.5, 0.5), (0.25, 0.75)]
    results = [result(job(str(number)), shares) for number, shares in enumerate(choices)]
    write_shard(engine, run=run, results=results, failures=[])

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
        assert current(connection) == head() == "0006"
        assert connection.execute(sqlalchemy.text("SELECT count(*) FROM reelabel.result")).scalar_one() == 0
    engine.dispose()
