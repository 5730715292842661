"""What `status` lists of runs, and how fast those that have ended were."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import func

from tasks.domain import RunSpec
from tasks.results.overview import list_runs, past_pace
from tasks.results.runs import close_run, count_lost_runs, open_run, update_run
from tests.results.rows import FACTS, SCOPE, SPEC

MINUTE = timedelta(minutes=1)


def start(db, number, *, spec=SPEC, **facts):
    open_run(db, run_id=UUID(int=number), spec=spec, facts=FACTS | facts)
    return UUID(int=number)


def test_runs_in_progress_come_first_and_then_the_latest(db):
    for number in range(1, 5):
        update_run(db, start(db, number), started_at=func.now() - (9 - number) * MINUTE)
    for number in (2, 3, 4):
        close_run(db, UUID(int=number), state="done", message="Reconciled.")
    update_run(db, UUID(int=4), started_at=func.now() - 99 * MINUTE)

    assert [run.run_id.int for run in list_runs(db, limit=9)] == [1, 3, 2, 4]
    assert [run.run_id.int for run in list_runs(db, limit=2)] == [1, 3]


def test_a_run_is_listed_with_its_time_until_its_end_or_its_last_heartbeat(db):
    ended, lost = start(db, 1), start(db, 2, process="another-boot pid:[1] 1 1")
    start(db, 3, jobs_total=5)
    close_run(db, ended, state="done", message="Reconciled.")
    for run_id, column in ((ended, "ended_at"), (lost, "seen_at")):
        update_run(db, run_id, started_at=func.now() - 60 * MINUTE, **{column: func.now() - 20 * MINUTE})
    update_run(db, ended, jobs_labelled=7, jobs_failed=1)

    runs = {run.run_id.int: run for run in list_runs(db, limit=9)}

    assert {number: run.state for number, run in runs.items()} == {1: "done", 2: "lost", 3: "running"}
    assert [runs[number].elapsed_s for number in (1, 2)] == pytest.approx([2400, 2400], abs=1)
    assert runs[1].jobs_per_s == pytest.approx(8 / 2400, rel=1e-2)
    assert (runs[1].message, runs[1].model, runs[1].remaining_s) == ("Reconciled.", "tiny", None)
    assert "start it again to continue" in runs[2].message
    assert (runs[3].jobs, runs[3].ended, runs[3].remaining_s) == (5, 0, None)  # its rate is unknown
    early = replace(runs[3], ended=2, elapsed_s=-4.0)  # by a clock that was set back
    assert (early.jobs_per_s, early.remaining_s) == (0, None)
    assert count_lost_runs(db) == 1


def test_the_pace_of_runs_is_that_of_their_jobs_and_the_mean_of_their_starts(db):
    wall_ms = {"engine start": 30_000.0, "answer": 1.0}
    for number, (jobs, jobs_per_s, cost) in enumerate(((30, 2.0, 0.6), (10, 5.0, None)), 1):
        run_id = start(db, number, host=f"host-{number}")
        costs = {"wall_ms": wall_ms | {"engine start": 30_000.0 * number}, "cost": cost}
        update_run(db, run_id, jobs_labelled=jobs - 1, jobs_failed=1, jobs_per_s=jobs_per_s, **costs)
    start(db, 3)  # in progress, without a rate
    update_run(db, start(db, 4, dataset="other"), jobs_labelled=9, jobs_per_s=1.0)
    update_run(db, start(db, 5, spec=RunSpec(model=SPEC.model, permutations=2)), jobs_labelled=9, jobs_per_s=1.0)

    both, one = past_pace(db, SCOPE, host=None), past_pace(db, SCOPE, host="host-2")

    assert (both.jobs, both.jobs_per_s, both.start_s) == (40, pytest.approx(40 / 17), 45)
    assert both.cost == pytest.approx(0.6 / 30)
    assert both.duration_s(80) == pytest.approx(45 + 34)
    assert (one.jobs, one.jobs_per_s, one.start_s, one.cost) == (10, 5, 60, None)


def test_a_dataset_without_runs_has_no_pace(db):
    none = past_pace(db, SCOPE, host=None)

    assert (none.jobs, none.jobs_per_s, none.start_s, none.cost) == (0, 0, 0, None)
