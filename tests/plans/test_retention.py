import os
import time
from datetime import timedelta
from uuid import uuid4

import pytest
import sqlalchemy
from sqlalchemy import func

from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore
from tasks.plans.lease import Work, claim
from tasks.plans.plan import close_plan, open_plans, plan_state
from tasks.results.retention import remove_plans
from tasks.results.runs import LOST_AFTER, close_run, update_run

STORE = ObjectStore(StoreSettings())
WEEK = timedelta(days=7)


@pytest.fixture
def age(db):
    """Set the times of a plan to ten days ago."""

    def to(plan):
        with db.begin() as connection:
            text = (
                "UPDATE reelabel.plan SET created_at = now() - interval '10 days', "
                "ended_at = ended_at - interval '10 days' WHERE plan_id = :id"
            )
            connection.execute(sqlalchemy.text(text), {"id": plan.plan_id})

    return to


def lease(db, plan):
    with db.begin() as connection:
        text = (
            "UPDATE reelabel.shard SET lease_until = now() + interval '1 minute', claimed_for = 'infer', "
            "state = 'extracted' WHERE plan_id = :id AND shard_index = 0"
        )
        connection.execute(sqlalchemy.text(text), {"id": plan.plan_id})


def test_an_open_plan_stays_while_a_run_with_its_spec_is_running(db, run, make_plan, age, tmp_path):
    plan, of_another_dataset = make_plan(), make_plan(dataset="other")
    for each in (plan, of_another_dataset):
        age(each)

    def remove():
        return remove_plans(db, STORE, root_uri=tmp_path.as_uri(), age=WEEK)

    assert remove() == (1, 0)
    assert open_plans(db) == [plan]
    update_run(db, run.run_id, seen_at=func.now() - LOST_AFTER - timedelta(seconds=1))
    assert remove() == (1, 0)


def test_ended_and_abandoned_plans_are_removed_with_their_files(db, run, make_plan, age, tmp_path):
    close_run(db, run.run_id, state="failed", message="")
    ended, abandoned, worked_on, new = (make_plan() for _ in range(4))
    close_plan(db, ended.plan_id, state="done")
    for plan in (ended, abandoned, worked_on):
        age(plan)
    lease(db, worked_on)
    nobodys = uuid4()
    for plan_id in (ended.plan_id, abandoned.plan_id, worked_on.plan_id, new.plan_id, nobodys):
        for name in ("0000.arrow", "extracted/000000.json"):
            path = tmp_path / "plans" / str(plan_id) / name
            path.parent.mkdir(parents=True)
            path.touch()
            os.utime(path, (0, 0))

    would = remove_plans(db, STORE, root_uri=tmp_path.as_uri(), age=WEEK, dry_run=True)
    went = remove_plans(db, STORE, root_uri=tmp_path.as_uri(), age=WEEK)

    assert would == went == (2, 6)
    assert {plan.plan_id for plan in open_plans(db)} == {worked_on.plan_id, new.plan_id}
    left = [info.uri.removeprefix(f"{tmp_path.as_uri()}/plans/") for info in STORE.list(f"{tmp_path.as_uri()}/plans")]
    remaining = sorted(str(plan.plan_id) for plan in (worked_on, new))
    assert left == [f"{plan}/{name}" for plan in remaining for name in ("0000.arrow", "extracted/000000.json")]


def test_a_plan_s_status_describes_what_it_waits_for(db, make_plan):
    plan = make_plan(shards=4)
    assert plan_state(db, plan.plan_id).status == "waiting for a worker: no shard is leased"

    lease(db, plan)

    state = plan_state(db, plan.plan_id)
    assert (state.planned, state.extracted, state.inferring) == (3, 1, 1)
    assert state.status == ""


def test_an_expired_lease_is_nobodys_work(db, make_plan):
    plan = make_plan(shards=1)
    claim(db, plan.plan_id, Work.BOTH, holder="dead", lease_s=0.01)
    time.sleep(0.05)

    state = plan_state(db, plan.plan_id)

    assert (state.extracting, state.inferring) == (0, 0)
