import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from infra.errors import PlanLostError
from tasks.plans.plan import close_plan, find_shared_plan, open_plans, plan_state, planning_lock
from tests.results.rows import SCOPE


def test_runs_with_the_same_manifest_and_spec_find_a_plan_until_it_is_closed(db, make_plan):
    make_plan()
    plan = make_plan(shared=True)

    assert find_shared_plan(db, SCOPE, manifest_fingerprint="f") == plan
    assert find_shared_plan(db, SCOPE, manifest_fingerprint="other") is None
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
    lost = f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND {here}"
    with planning_lock(db, SCOPE):
        plan = make_plan()
        with db.begin() as connection:
            assert connection.execute(text(lost)).scalar_one()

    assert open_plans(db) == [plan]
    with planning_lock(db, SCOPE):
        assert find_shared_plan(db, SCOPE, manifest_fingerprint="f") is None


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
