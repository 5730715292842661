"""A run whose workers are elsewhere tells which are alive, and what to do if there are none."""

import logging
from contextlib import ExitStack
from uuid import uuid4

import pytest

from flows.run import live_workers
from flows.run.live_workers import Roster
from flows.run.workers_needed import describe_workers
from tasks.domain import ModelIdentity
from tasks.plans.lease import Work
from tasks.plans.plan import PlanState
from tasks.plans.worker import alive, start_command
from tasks.plans.worker import live_workers as list_workers

MODEL = ModelIdentity(name="hub/one")
WAITING = PlanState(planned=2, extracted=1, done=0, failed=0, leased=0, jobs_left=150)
EXTRACTED = PlanState(planned=0, extracted=3, done=0, failed=0, leased=0, jobs_left=150)


@pytest.fixture
def told(caplog, monkeypatch):
    """Return a function that returns what was logged since its last call."""
    caplog.set_level(logging.INFO, "of a flow run")
    monkeypatch.setattr(live_workers, "get_run_logger", lambda: logging.getLogger("of a flow run"))

    def told():
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    return told


@pytest.fixture
def roster(db):
    def roster(patience_s=0, waiting="", **named):
        waits = dict.fromkeys((Work.EXTRACT, Work.INFER), lambda: waiting)
        plan = {"plan_id": uuid4(), "needed": MODEL, "model": None} | named
        return Roster(database=db, waiting=waits, patience_s=patience_s, **plan)

    return roster


def test_a_stage_without_workers_is_told_with_the_command_that_starts_one(roster, told):
    roster(model="hub/one").look(WAITING)

    assert told() == [
        "No extract worker is alive: start one by `reelabel worker extract`.",
        "No infer worker is alive: start one by `reelabel worker infer --model hub/one`.",
    ]


def test_what_the_flow_runs_of_a_stage_wait_for_is_told_with_it(roster, told):
    roster(waiting="1 flow run of infer/gpu in work pool gpu, which is paused").look(EXTRACTED)

    absence = "No infer worker is alive: start one by `reelabel worker infer`"
    assert told() == [f"{absence}; 1 flow run of infer/gpu in work pool gpu, which is paused."]


def test_workers_get_time_to_start(roster, told):
    roster(patience_s=60).look(WAITING)

    assert told() == []


def test_workers_are_told_when_they_come_and_go(roster, told, db):
    patient = roster(patience_s=60)
    with alive(db, Work.EXTRACT):
        patient.look(WAITING)
        patient.look(WAITING)
        (only,) = list_workers(db)
        place = f"{only.host}: {only.pid}"
        assert told() == [f"Alive: 1 extract worker ({place}), no infer worker."]
        with alive(db, Work.INFER, model=MODEL):
            patient.look(WAITING)
    patient.look(WAITING)

    assert told() == [
        f"Alive: 1 extract worker ({place}), 1 infer worker ({place}).",
        "Alive: no extract worker, no infer worker.",
    ]


def test_workers_of_another_plan_or_model_are_no_help(roster, told, db):
    with (
        alive(db, Work.EXTRACT, plan_id=uuid4()),
        alive(db, Work.INFER, model=ModelIdentity(name="hub/other")),
    ):
        roster().look(WAITING)

    assert [line.partition(":")[0] for line in told()] == ["No extract worker is alive", "No infer worker is alive"]


def test_of_many_workers_a_few_are_named(db):
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(alive(db, Work.EXTRACT))
        described = describe_workers(list_workers(db))

    assert described.startswith("6 extract workers (")
    assert described.endswith(", 2 more), no infer worker")


def test_the_name_of_a_model_is_quoted_for_a_shell():
    assert start_command(Work.INFER, model="/models/my model") == "reelabel worker infer --model '/models/my model'"
