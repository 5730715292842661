from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import sqlalchemy

from tasks.results.diff import compare_runs
from tasks.results.retention import remove_rows, replaced_before
from tasks.results.runs import close_run, open_run
from tasks.results.write import ShardWriter
from tests.results.rows import FACTS, SPEC, failure, job, result


def flipped(of, probabilities=(0.9, 0.1)):
    """Label a job with its first choice."""
    label = result(of, probabilities)
    return replace(label, answer=replace(label.answer, choice_index=0))


def later_run(db, run):
    later = replace(run, run_id=uuid4())
    open_run(db, run_id=later.run_id, spec=SPEC, facts=FACTS)
    return later


def history(db):
    query = "SELECT job_id, label, run_id, replaced_by FROM reelabel.result_history ORDER BY history_id"
    with db.connect() as connection:
        return connection.execute(sqlalchemy.text(query)).all()


def test_a_replaced_answer_is_kept_and_compared_with_the_one_that_replaced_it(db, run):
    a, b, c, d = (job(name, task="colour" if name < "c" else None) for name in "abcd")
    ShardWriter(db, run).write(results=[result(each) for each in (a, b, c, d)], failures=[])
    assert history(db) == []
    later = later_run(db, run)
    moved = replace(failure(d), source_fingerprint="e2")
    ShardWriter(db, later).write(results=[flipped(a), result(b, (0.4, 0.6))], failures=[moved, failure(c)])

    assert history(db) == [(name, "no", run.run_id, later.run_id) for name in "abd"]
    diff = compare_runs(db, later.run_id, earlier=None)
    assert diff == compare_runs(db, later.run_id, earlier=run.run_id)
    [colour] = diff.tasks
    assert (colour.task, colour.jobs, colour.changed, colour.up, colour.down) == ("colour", 2, 1, 1, 1)
    assert colour.labels == (("no", "yes", 1),)
    assert abs(colour.margin_change - ((0.8 - 0.5) + (0.2 - 0.5)) / 2) < 1e-9


def test_of_a_job_that_a_run_answered_twice_its_last_answer_is_compared_with_that_of_the_run_before(db, run):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])
    later = later_run(db, run)
    for answer in (flipped(job("a")), result(job("a"), (0.4, 0.6))):
        ShardWriter(db, later).write(results=[answer], failures=[])

    for earlier in (None, run.run_id):
        [pair] = compare_runs(db, later.run_id, earlier=earlier).pairs
        assert (pair.label_before, pair.label_after) == ("no", "no")
        assert (pair.margin_before, round(pair.margin_after, 6)) == (0.5, 0.2)


def test_answers_to_another_question_are_not_compared(db, run):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])
    later = later_run(db, run)
    ShardWriter(db, later).write(results=[flipped(job("a", prompt="And now?"))], failures=[])

    diff = compare_runs(db, later.run_id, earlier=None)

    assert (diff.pairs, diff.other_questions) == ((), 1)


def test_history_is_removed_past_its_retention(db, run):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])
    ShardWriter(db, run).write(results=[flipped(job("a"))], failures=[])
    close_run(db, run.run_id, state="done", message="")
    assert len(history(db)) == 1
    assert remove_rows(db, replaced_before(timedelta(days=1))) == 0

    assert remove_rows(db, replaced_before(timedelta(0)), dry_run=True) == 1
    assert remove_rows(db, replaced_before(timedelta(0))) == 1
    assert history(db) == []
