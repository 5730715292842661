from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from tasks.results.pending import refresh_annotations
from tasks.results.read import read_outcomes
from tasks.results.write import ShardWriter
from tests.job_table import job_table
from tests.results.rows import SCOPE, failure, job, result
from tests.wait import until

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.mark.parametrize(("ended", "table"), [(result, "result"), (failure, "failure")])
def test_annotations_and_new_rows_of_the_same_jobs_wait_for_each_other_in_one_order(db, run, ended, table):
    def write():
        rows = [ended(job(name)) for name in "abc"]
        ShardWriter(db, run).write(results=rows if ended is result else [], failures=rows if ended is failure else [])

    def annotate():
        refresh_annotations(db, SCOPE, jobs=job_table([job(name, task="colour") for name in "cba"]))

    write()
    with db.connect().execution_options(isolation_level="AUTOCOMMIT") as other, ThreadPoolExecutor(2) as threads:
        # As autovacuum does at times: rows are then updated in the order of the manifest, and replaced as they lie.
        other.execute(text(f"ANALYZE reelabel.{table}"))
        with db.begin() as connection:
            connection.execute(text(f"SELECT FROM reelabel.{table} WHERE job_id = 'b' FOR UPDATE"))
            both = [threads.submit(write), threads.submit(annotate)]
            until(lambda: other.scalar(text(_WAITING)) == 2)
        for each in both:
            each.result()

    assert [part["job_id"].to_list() for part in read_outcomes(db, SCOPE)] == [[], ["a", "b", "c"]]
