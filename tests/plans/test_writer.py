"""Shards that finish at the same time are written together, but succeed or fail separately."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from infra.errors import LeaseLostError
from tasks.domain import MAX_JOBS
from tasks.plans.lease import Work, claim
from tasks.plans.plan import plan_state
from tasks.results.read import count_outcomes, read_failures, read_results
from tasks.results.write import ShardWriter, _CurrentRows
from tests.results.rows import SCOPE, SPEC, failure, job, result
from tests.wait import until

_TRANSACTIONS = text("SELECT count(DISTINCT xmin::text) FROM reelabel.result")
_WAITING = text(
    "SELECT count(*) FROM pg_locks JOIN pg_database ON database = pg_database.oid "
    "WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"
)
_HOLD = text("SELECT pg_advisory_xact_lock(hashtextextended(concat_ws('/', 'd', CAST(:spec_id AS text), 'first'), 0))")


@pytest.fixture
def write_at_once(db, run):
    """Write a shard that waits for a lock, and meanwhile others, so that these are grouped."""

    def write(*shards):
        writer = ShardWriter(db, run)
        with ThreadPoolExecutor(1 + len(shards)) as threads:
            with db.begin() as connection:
                connection.execute(_HOLD, {"spec_id": SPEC.spec_id})
                outcomes = [threads.submit(writer.write, [result(job("first"))], [])]
                until(lambda: connection.execute(_WAITING).scalar_one())
                outcomes += [threads.submit(writer.write, *ended, **lease) for *ended, lease in shards]
                until(lambda: len(writer._gathered) == len(shards))
            return [outcome.exception() for outcome in outcomes]

    return write


def labels(db):
    return read_results(db, SCOPE).sort("job_id")["job_id"].to_list()


def test_shards_that_finish_during_a_transaction_share_the_next_one(db, write_at_once):
    shards = [([result(job(name))], [failure(job(f"{name}-failed"))], {}) for name in "abc"]

    assert write_at_once(*shards) == [None] * 4

    assert labels(db) == ["a", "b", "c", "first"]
    assert len(read_failures(db, SCOPE)) == 3
    with db.connect() as connection:
        assert connection.execute(_TRANSACTIONS).scalar_one() == 2


def test_a_transaction_takes_no_more_shards_than_the_lock_limit_allows(db, write_at_once):
    shards = [
        (
            [result(job(f"{name}{number:03}")) for number in range(75)],
            [failure(job(f"{name}-{number}")) for number in range(75)],
            {},
        )
        for name in "abc"
    ]

    assert write_at_once(*shards) == [None] * 4

    assert count_outcomes(db, SCOPE) == (226, 225)
    with db.connect() as connection:
        assert connection.execute(_TRANSACTIONS).scalar_one() == 3


def test_each_shard_is_written_under_its_own_lease(db, write_at_once, make_plan):
    plan = make_plan(shards=2)
    leases = [claim(db, plan.plan_id, Work.BOTH, holder="here", lease_s=600) for _ in range(2)]
    shards = [([result(job(f"{lease.shard_index}"))], [], {"lease": lease}) for lease in reversed(leases)]

    assert write_at_once(*shards) == [None] * 3

    fences = read_results(db, SCOPE).sort("job_id").select("job_id", "fence").rows()
    assert fences == [("0", leases[0].token), ("1", leases[1].token), ("first", 0)]
    assert plan_state(db, plan.plan_id).done == 2


def test_a_lost_lease_does_not_fail_other_shards_of_the_transaction(db, write_at_once, make_plan):
    plan = make_plan(shards=2)
    lost = claim(db, plan.plan_id, Work.BOTH, holder="dead", lease_s=0.05)
    time.sleep(0.1)
    held = [claim(db, plan.plan_id, Work.BOTH, holder="here", lease_s=600) for _ in range(2)]
    [other] = [lease for lease in held if lease.shard_index != lost.shard_index]

    outcomes = write_at_once(
        ([result(job("a"))], [], {"lease": lost}),
        ([result(job("b"))], [], {"lease": other}),
    )

    assert [type(outcome) for outcome in outcomes] == [type(None), LeaseLostError, type(None)]
    assert labels(db) == ["b", "first"]
    assert plan_state(db, plan.plan_id).done == 1


def test_a_rejected_row_does_not_fail_other_shards_of_the_transaction(db, write_at_once):
    refused = result(job("a"), bytes_fetched=-1)

    outcomes = write_at_once(([refused], [], {}), ([result(job("b"))], [], {}))

    assert outcomes == [None] * 3
    assert labels(db) == ["b", "first"]
    assert read_failures(db, SCOPE).select("job_id", "code").rows() == [("a", "internal")]


@pytest.mark.parametrize(("first", "then"), [(1, MAX_JOBS), (MAX_JOBS, 1)])
def test_writers_of_a_whole_shard_and_of_one_of_its_jobs_wait_for_each_other(db, run, first, then):
    shards = [[failure(job(str(number))) for number in range(count)] for count in (first, then)]
    with ThreadPoolExecutor(1) as threads:
        with db.begin() as connection:
            _CurrentRows.locked(connection, run, [each.job.job_id for each in shards[0]])
            other = threads.submit(ShardWriter(db, run).write, [], shards[1])
            until(lambda: connection.execute(_WAITING).scalar_one())
            assert not other.done()
        other.result()

    assert count_outcomes(db, SCOPE) == (0, then)
