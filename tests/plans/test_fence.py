"""The answer of the newer lease is kept, whichever is written last."""

import time

import pytest

from infra.errors import LeaseLostError
from tasks.plans.lease import Work, claim
from tasks.plans.plan import plan_state
from tasks.results.read import read_failures, read_results
from tasks.results.write import ShardWriter
from tests.results.rows import SCOPE, failure, job, result


@pytest.fixture
def take(db):
    def take(plan, lease_s=600):
        return claim(db, plan.plan_id, Work.BOTH, holder="here", lease_s=lease_s)

    return take


def rows_of(db):
    labels, failures = read_results(db, SCOPE), read_failures(db, SCOPE)
    return labels.select("job_id", "label", "fence").rows(), failures.select("job_id", "code", "fence").rows()


def test_rows_store_the_lease_as_their_fence_and_the_shard_is_done(db, run, make_plan, take):
    plan = make_plan(shards=1)
    lease = take(plan)

    for _ in range(2):  # repeated, as after a connection lost before the reply
        ShardWriter(db, run).write(results=[result(job("a"))], failures=[failure(job("b"))], lease=lease)

    assert rows_of(db) == ([("a", "no", lease.token)], [("b", "no_frames", lease.token)])
    assert read_failures(db, SCOPE)["attempts"].to_list() == [1]
    assert plan_state(db, plan.plan_id).done == 1


def test_a_stalled_worker_that_resumes_changes_nothing(db, run, make_plan, take):
    plan = make_plan(shards=1)
    lost = take(plan, lease_s=0.05)
    time.sleep(0.1)
    taken = take(plan)

    with pytest.raises(LeaseLostError):
        ShardWriter(db, run).write(results=[result(job("a"))], failures=[failure(job("b"))], lease=lost)
    assert rows_of(db) == ([], [])

    ShardWriter(db, run).write(results=[result(job("a"))], failures=[], lease=taken)
    with pytest.raises(LeaseLostError):
        ShardWriter(db, run).write(results=[], failures=[failure(job("a"))], lease=lost)
    assert rows_of(db) == ([("a", "no", taken.token)], [])
    assert plan_state(db, plan.plan_id).done == 1


@pytest.mark.parametrize("newer_is", ["label", "failure"])
@pytest.mark.parametrize("older_is", ["label", "failure"])
def test_of_two_plans_with_the_same_job_the_newer_lease_wins_in_any_order(db, run, make_plan, take, newer_is, older_is):
    def write(lease, kind, code):
        labels = [result(job("a"), (0.4, 0.6) if code == "new" else (0.1, 0.9))] if kind == "label" else []
        ShardWriter(db, run).write(
            results=labels,
            failures=[failure(job("a"), code=code)] if kind == "failure" else [],
            lease=lease,
        )

    older, newer = take(make_plan(shards=1)), take(make_plan(shards=1, kind="backfill"))
    write(newer, newer_is, "new")
    before = rows_of(db)

    write(older, older_is, "old")

    assert rows_of(db) == before
    assert len(before[0] + before[1]) == 1
    assert (before[0] + before[1])[0][2] == newer.token
