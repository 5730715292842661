from concurrent.futures import ThreadPoolExecutor

import sqlalchemy
from sqlalchemy import inspect

from infra.database import connect
from infra.settings import DatabaseSettings
from sql.migrate import current, downgrade, head, upgrade


def tables(url):
    engine = connect(DatabaseSettings(url=url))
    try:
        return set(inspect(engine).get_table_names(schema="reelabel"))
    finally:
        engine.dispose()


def test_migrations_go_down_and_up(database_url):
    assert tables(database_url) == {"spec", "run", "result", "failure"}

    downgrade(database_url)
    assert tables(database_url) == set()

    upgrade(database_url)
    assert tables(database_url) == {"spec", "run", "result", "failure"}


def test_many_upgrades_at_once_leave_one_schema(database_url):
    downgrade(database_url)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(upgrade, [database_url] * 4))

    engine = connect(DatabaseSettings(url=database_url))
    with engine.connect() as connection:
        assert current(connection) == head() == "0002"
        assert connection.execute(sqlalchemy.text("SELECT count(*) FROM reelabel.result")).scalar_one() == 0
    engine.dispose()
