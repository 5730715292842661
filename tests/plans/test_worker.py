import threading
from uuid import uuid4

import pytest
from sqlalchemy import event, func, select, text, update

from infra.database.connect import connected
from tasks.database.tables import WORKER
from tasks.domain import ModelIdentity
from tasks.plans.lease import Work
from tasks.plans.worker import alive, live_workers
from tests.wait import until

MODEL = ModelIdentity(name="one")


def test_a_worker_is_listed_with_its_process_as_long_as_it_works(db):
    with alive(db, Work.EXTRACT), alive(db, Work.INFER, model=MODEL):
        extracting, inferring = live_workers(db)
    listed = [(each.stage, each.model) for each in (extracting, inferring)]

    assert listed == [(Work.EXTRACT, None), (Work.INFER, MODEL)]
    assert extracting.pid == inferring.pid
    assert live_workers(db) == []


def test_a_worker_that_fails_is_no_longer_listed(db):
    with pytest.raises(RuntimeError), alive(db, Work.EXTRACT):
        raise RuntimeError

    assert live_workers(db) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"seen_at": func.now() - func.make_interval(0, 0, 0, 0, 0, 0, 25)}, id="no heartbeat"),
        pytest.param({"process": func.regexp_replace(WORKER.c.process, r"\d+$", "1")}, id="its process has ended"),
    ],
)
def test_a_worker_that_was_killed_is_not_listed(db, change):
    with alive(db, Work.EXTRACT):
        with db.begin() as connection:
            connection.execute(update(WORKER).values(change))
        assert live_workers(db) == []


def test_workers_without_a_heartbeat_for_an_hour_are_forgotten_when_another_one_starts(db):
    with alive(db, Work.EXTRACT, beat_s=60):
        with db.begin() as connection:
            connection.execute(update(WORKER).values(seen_at=func.now() - func.make_interval(0, 0, 0, 0, 2)))
        with alive(db, Work.INFER), db.connect() as connection:
            assert connection.execute(select(WORKER.c.stage)).scalars().all() == ["infer"]


def test_a_worker_that_was_forgotten_is_listed_again_at_its_next_heartbeat(db):
    with alive(db, Work.EXTRACT, beat_s=0.01):
        with db.begin() as connection:
            connection.execute(WORKER.delete())
        while not live_workers(db):
            pass


def test_a_worker_whose_login_was_refused_for_a_moment_is_listed_again(db, database):
    refused = threading.Event()

    def execute(*statements):
        with db.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    with connected(database) as own, alive(own, Work.EXTRACT, beat_s=0.01):
        event.listen(own, "handle_error", lambda _: refused.set())
        execute("REVOKE INSERT, UPDATE ON reelabel.worker FROM reelabel_writer", "DELETE FROM reelabel.worker")
        assert refused.wait(30)
        execute("GRANT INSERT, UPDATE ON reelabel.worker TO reelabel_writer")
        until(lambda: live_workers(db))


@pytest.mark.parametrize(
    ("worker", "is_served"),
    [
        pytest.param({}, True, id="any plan"),
        pytest.param({"plan_id": "mine"}, True, id="this plan"),
        pytest.param({"plan_id": "other"}, False, id="another plan"),
        pytest.param({"model": MODEL}, True, id="this model"),
        pytest.param({"model": ModelIdentity(name="one", dtype="float32")}, False, id="another type of the weights"),
    ],
)
def test_a_worker_serves_the_plans_of_its_model(db, worker, is_served):
    plans = {"mine": uuid4(), "other": uuid4()}
    named = worker | {"plan_id": plans.get(worker.get("plan_id"))}

    with alive(db, Work.INFER, **named):
        (found,) = live_workers(db)

    assert found.serves(plans["mine"], MODEL) == is_served
