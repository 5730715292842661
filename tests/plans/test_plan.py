import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text, update

from infra.errors import PlanLostError
from reelabel.errors import ConfigurationError
from tasks.database.tables import PLAN
from tasks.database.tables import SPEC as SPEC_TABLE
from tasks.plans.lease import Work, claim, finish
from tasks.plans.plan import (
    PlanState,
    close_plan,
    count_extracted,
    done_shards,
    find_shared_plan,
    is_drained,
    open_plans,
    plan_state,
    planning_lock,
    sum_shard_reports,
)
from tasks.results.runs import lock_dataset
from tests.results.rows import SCOPE


def test_runs_with_the_same_manifest_and_spec_find_a_plan_until_it_is_closed(db, make_plan):
    make_plan()
    plan = make_plan(shared=True)

    assert find_shared_plan(db, SCOPE, manifest_fingerprint="f") == plan
    assert find_shared_plan(db, SCOPE, manifest_fingerprint="other") is None
    for name in ("dataset", "spec_id"):
        assert find_shared_plan(db, replace(SCOPE, **{name: "other"}), manifest_fingerprint="f") is None
    close_plan(db, plan.plan_id, state="done")
    assert find_shared_plan(db, SCOPE, manifest_fingerprint="f") is None


def test_a_second_shared_plan_for_the_same_jobs_is_refused(db, make_plan):
    plan = make_plan(shared=True)

    with pytest.raises(PlanLostError, match="run again to join its plan"):
        make_plan(shared=True)

    assert open_plans(db) == [plan]
    assert plan_state(db, plan.plan_id).planned == plan.shards


def test_a_plan_is_valid_if_the_session_that_held_the_lock_was_lost(db, make_plan):
    here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"  # other tests hold locks, too
    held = f"SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND {here}"
    lost = f"SELECT pg_terminate_backend(pid) FROM ({held})"
    with planning_lock(db, SCOPE):
        plan = make_plan()
        with db.begin() as connection:
            assert connection.execute(text(lost)).scalar_one()

    assert open_plans(db) == [plan]
    with planning_lock(db, SCOPE):
        assert find_shared_plan(db, SCOPE, manifest_fingerprint="f") is None


def test_jobs_are_left_until_their_shard_is_done(db, make_plan):
    plan, other = make_plan(shards=2), make_plan(shards=1)

    for work, state, left, done in ((Work.EXTRACT, "extracted", 200, []), (Work.INFER, "done", 100, [0])):
        lease = claim(db, plan.plan_id, work, holder="here", lease_s=600)
        with db.begin() as connection:
            finish(connection, lease, state=state)
        assert plan_state(db, plan.plan_id).jobs_left == left
        assert (done_shards(db, plan.plan_id), count_extracted(db, plan.plan_id)) == (done, 1 - len(done))
    assert not is_drained(db, plan.plan_id)
    assert (done_shards(db, other.plan_id), count_extracted(db, other.plan_id)) == ([], 0)


NO_SHARDS = dict.fromkeys(PlanState.__slots__, 0)


@pytest.mark.parametrize(
    ("shards", "status", "idle"),
    [
        ({"planned": 2}, "waiting for a worker: no shard is leased", ["extract", "infer"]),
        ({"planned": 1, "done": 1}, "waiting for a worker: no shard is leased", ["extract"]),
        ({"planned": 1, "extracted": 1}, "waiting for a worker: no shard is leased", ["infer"]),
        ({"planned": 1, "extracted": 2, "extracting": 1}, "2 extracted shards waiting for an engine", ["infer"]),
        ({"planned": 2, "inferring": 1}, "engine waiting for extraction", ["extract"]),
        ({"planned": 2, "extracted": 1, "inferring": 1}, "", []),
        ({"planned": 1, "extracting": 1}, "", []),
        ({"done": 2, "failed": 1}, "", []),
    ],
)
def test_a_plan_says_what_it_waits_for(shards, status, idle):
    leased = shards.get("extracting", 0) + shards.get("inferring", 0)

    state = PlanState(**NO_SHARDS | {"leased": leased} | shards)

    assert (state.status, state.idle_stages, state.is_drained) == (status, idle, "done" in shards and not idle)


def test_open_plans_are_listed_oldest_first(db, make_plan):
    with db.begin() as connection:
        connection.execute(SPEC_TABLE.insert().values(spec_id="0", body={}))
    newest, first, second = make_plan(spec_id="0"), make_plan(), make_plan(spec_id="0")
    with db.begin() as connection:
        for days, plan in ((2, first), (1, second)):
            before = {"created_at": PLAN.c.created_at - timedelta(days=days)}
            connection.execute(update(PLAN).where(PLAN.c.plan_id == plan.plan_id).values(before))

    assert open_plans(db) == [first, second, newest]


def test_the_reports_of_done_shards_are_summed_and_each_engine_counts_once(db, make_plan):
    plan, holders = make_plan(shards=4), ("here", "here", "there", "there")
    leases = [claim(db, plan.plan_id, Work.BOTH, holder=holder, lease_s=600) for holder in holders]
    tally = {"shards_done": 1, "jobs_labelled": 90, "stage_ms.decode": 1.5, "engines_ms.answer": -10.0}
    with db.begin() as connection:
        for lease in leases[:3]:
            finish(connection, lease, state="done", report={"tally": tally, "gpus": 2})

    whole, later = (sum_shard_reports(db, plan.plan_id, excluded=excluded) for excluded in ((), (0,)))

    summed = {"shards_done": 3, "jobs_labelled": 270, "stage_ms.decode": 4.5, "engines_ms.answer": -30.0}
    assert whole == (summed, 2, 4)
    assert (later.tally["shards_done"], later.tally["jobs_labelled"], later.engines, later.gpus) == (2, 180, 2, 4)


def test_the_lock_ends_with_a_transaction_that_postgres_may_vacuum_behind(db):
    locks = (
        "SELECT DISTINCT state, backend_xid IS NULL AND backend_xmin IS NULL "
        "FROM pg_stat_activity JOIN pg_locks USING (pid) "
        "WHERE locktype = 'advisory' AND granted AND datname = current_database()"
    )
    with planning_lock(db, SCOPE), db.connect() as connection:
        held = connection.execute(text(locks)).all()
    with db.connect() as connection:
        left = connection.execute(text(locks)).all()

    assert (held, left) == ([("idle in transaction", True)], [])


@pytest.mark.parametrize(
    "limit", ["idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout", "transaction_timeout"]
)
def test_the_limits_of_a_login_end_neither_planning_nor_the_wait_for_it(db, limit):
    with db.begin() as connection:
        connection.execute(text(f"ALTER DATABASE {db.url.database} SET {limit} = '50ms'"))
    db.dispose()
    begun = threading.Event()

    def plan_as_well():
        begun.set()
        with planning_lock(db, SCOPE):
            return True

    with ThreadPoolExecutor(1) as threads:
        with planning_lock(db, SCOPE):
            other = threads.submit(plan_as_well)
            assert begun.wait(30)
            time.sleep(0.3)
            assert not other.done()
        assert other.result()


def test_a_dataset_is_not_archived_while_a_run_of_it_is_planned(db):
    with planning_lock(db, SCOPE), db.begin() as connection, pytest.raises(ConfigurationError, match="Dataset d is"):
        lock_dataset(connection, "d", exclusive=True)


def test_only_one_planner_holds_the_lock(db):
    inside, most = [], []

    def plan(_):
        with planning_lock(db, SCOPE):
            inside.append(threading.get_ident())
            most.append(len(inside))
            inside.clear()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(plan, range(9)))

    assert most == [1] * 9
