"""What is sent to Postgres to fill a temporary table."""

from contextlib import contextmanager
from types import SimpleNamespace

import polars as pl
from sqlalchemy import Column, MetaData, Table, Text

from tasks.database.temp_table import copy_data_frames


def test_an_id_that_older_servers_take_for_the_end_of_the_data_is_quoted():
    sent = []

    @contextmanager
    def cursor():
        yield SimpleNamespace(copy=copy)

    @contextmanager
    def copy(_statement):
        yield SimpleNamespace(write=sent.append)

    driver = SimpleNamespace(driver_connection=SimpleNamespace(cursor=cursor))
    connection = SimpleNamespace(connection=driver, execute=lambda _: None)
    ids = pl.DataFrame({"job_id": ["a", "\\.", "b"]})

    copy_data_frames(connection, Table("named", MetaData(), Column("job_id", Text)), [ids])

    assert "".join(sent).splitlines() == ['"a"', '"\\."', '"b"']
