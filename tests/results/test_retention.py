from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
import sqlalchemy
from sqlalchemy import func, select, update

from tasks.database.tables import CHUNK, FAILURE, RESULT
from tasks.domain import RunSpec
from tasks.domain.chunks import ChunkOutcome, cut_job, merge_chunks
from tasks.results.read import read_failures, read_results
from tasks.results.retention import older_than, remove_rows, replaced_before
from tasks.results.runs import LOST_AFTER, close_run, open_run, update_run
from tasks.results.write import ShardWriter
from tests.results.rows import FACTS, SCOPE, SPEC, failure, job, result


@pytest.fixture
def old_and_new(db, run):
    """Write a label, one that it has replaced, and a failure of ten days ago, and a label and a failure of today."""
    for _ in range(2):
        ShardWriter(db, run).write(results=[result(job("old"))], failures=[failure(job("old failure"))])
    with db.begin() as connection:
        for table in ("result", "result_history", "failure"):
            aged = f"UPDATE reelabel.{table} SET created_at = now() - interval '10 days'"
            connection.execute(sqlalchemy.text(aged))
    ShardWriter(db, run).write(results=[result(job("new"))], failures=[failure(job("new failure"))])


def left(db, spec=SPEC):
    both = [
        read(db, replace(SCOPE, spec_id=spec.spec_id))["job_id"].to_list() for read in (read_results, read_failures)
    ]
    return [*both[0], *both[1]]


@pytest.mark.usefixtures("old_and_new")
def test_rows_of_a_dataset_stay_while_a_run_is_in_progress(db, run):
    age, newer = timedelta(days=9), RunSpec(model=SPEC.model, permutations=2)
    under_way = uuid4()
    close_run(db, run.run_id, state="done", message="")
    open_run(db, run_id=under_way, spec=newer, facts=FACTS)

    assert remove_rows(db, older_than(age), dry_run=True) == remove_rows(db, older_than(age)) == 0

    update_run(db, under_way, seen_at=func.now() - LOST_AFTER - timedelta(seconds=1))
    assert remove_rows(db, older_than(age)) == 3


@pytest.mark.usefixtures("old_and_new")
def test_rows_older_than_the_limit_are_removed(db, run):
    close_run(db, run.run_id, state="done", message="")
    assert remove_rows(db, older_than(timedelta(days=9)), dry_run=True) == 3
    assert len(left(db)) == 4

    assert remove_rows(db, older_than(timedelta(days=9))) == 3

    assert left(db) == ["new", "new failure"]
    assert remove_rows(db, older_than(timedelta(days=9))) == 0


@pytest.mark.usefixtures("old_and_new")
def test_a_dry_run_counts_a_row_that_several_rules_match_once_as_the_removal_does(db, run):
    close_run(db, run.run_id, state="done", message="")
    open_run(db, run_id=uuid4(), spec=RunSpec(model=SPEC.model, permutations=2), facts=FACTS | {"state": "done"})
    rules = [older_than(timedelta(days=9)), replaced_before(timedelta(0)), older_than(timedelta(0))]

    would, do = (
        [remove_rows(db, rule, earlier=rules[:number], dry_run=dry) for number, rule in enumerate(rules)]
        for dry in (True, False)
    )

    assert would == do == [3, 0, 2]


def test_chunks_stay_as_long_as_the_row_of_their_job_and_go_with_it(db, run):
    cut = cut_job(job("film", chunk_s=60), 120)
    chunks = [ChunkOutcome(job=cut.job, number=number, outcome=result(part)) for number, part in enumerate(cut.chunks)]
    row = merge_chunks(cut, chunks, "mean")
    lost = cut_job(job("lost", chunk_s=60), 120)
    failed = [
        ChunkOutcome(job=lost.job, number=number, outcome=failure(part)) for number, part in enumerate(lost.chunks)
    ]
    failed_row = merge_chunks(lost, failed, "mean")
    ShardWriter(db, run).write([row], [failed_row], chunks=[*chunks, *failed])
    newer = RunSpec(model=SPEC.model, permutations=2)
    open_run(db, run_id=run.run_id, spec=newer, facts=FACTS)
    ShardWriter(db, replace(run, spec_id=newer.spec_id)).write([result(job("film")), result(job("lost"))], [])
    close_run(db, run.run_id, state="done", message="")

    def age(table, *conditions):
        with db.begin() as connection:
            connection.execute(update(table).where(*conditions).values(created_at=func.now() - timedelta(days=10)))

    def count():
        with db.connect() as connection:
            return connection.execute(select(func.count()).select_from(CHUNK)).scalar_one()

    age(CHUNK)
    assert (remove_rows(db, older_than(timedelta(days=9))), count()) == (0, 4)

    age(RESULT, RESULT.c.spec_id == SPEC.spec_id)
    assert (remove_rows(db, older_than(timedelta(days=9))), count()) == (1, 2)

    age(FAILURE)
    assert (remove_rows(db, older_than(timedelta(days=9))), count()) == (1, 0)
