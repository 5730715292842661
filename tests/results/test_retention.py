from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
import sqlalchemy

from tasks.domain import RunSpec
from tasks.results.read import read_failures, read_results
from tasks.results.retention import remove_old, remove_superseded
from tasks.results.runs import open_run
from tasks.results.writer import ShardWriter
from tests.results.rows import SPEC, failure, job, result


@pytest.fixture
def old_and_new(engine, run):
    """A label and a failure of ten days ago, and the same of today."""
    ShardWriter(engine, run).write(results=[result(job("old"))], failures=[failure(job("old failure"))])
    with engine.begin() as connection:
        for table in ("result", "failure"):
            aged = f"UPDATE reelabel.{table} SET created_at = now() - interval '10 days'"
            connection.execute(sqlalchemy.text(aged))
    ShardWriter(engine, run).write(results=[result(job("new"))], failures=[failure(job("new failure"))])


def left(engine, spec=SPEC):
    both = [
        read(engine, dataset="d", spec_id=spec.spec_id)["job_id"].to_list() for read in (read_results, read_failures)
    ]
    return [*both[0], *both[1]]


@pytest.mark.usefixtures("old_and_new")
def test_rows_older_than_the_bound_go(engine):
    assert remove_old(engine, timedelta(days=9), dry_run=True) == 2
    assert len(left(engine)) == 4

    assert remove_old(engine, timedelta(days=9)) == 2

    assert left(engine) == ["new", "new failure"]
    assert remove_old(engine, timedelta(days=9)) == 0


def test_rows_of_superseded_specs_go_and_those_of_other_datasets_stay(engine, run):
    newer = RunSpec(model=SPEC.model, permutations=2)
    facts = {"manifest_uri": "m.parquet", "kind": "classify", "host": "h", "jobs_total": 1, "jobs_skipped": 0}
    for spec, dataset in ((newer, "d"), (SPEC, "other")):
        key = replace(run, run_id=uuid4(), spec_id=spec.spec_id, dataset=dataset)
        open_run(engine, run_id=key.run_id, spec=spec, facts=facts | {"dataset": dataset})
        ShardWriter(engine, key).write(results=[result(job("a"))], failures=[])
    ShardWriter(engine, run).write(results=[result(job("a"))], failures=[failure(job("b"))])

    assert remove_superseded(engine, 2) == 0
    assert remove_superseded(engine, 1, dry_run=True) == 2
    assert remove_superseded(engine, 1) == 2

    assert left(engine) == []
    assert left(engine, newer) == ["a"]
    assert len(read_results(engine, dataset="other", spec_id=SPEC.spec_id)) == 1
