"""What a run says while a stage of its plan has shards, but no worker."""

import logging

import pytest

from flows.run import remote
from flows.run.remote import IdleAlarm
from tasks.plans.lease import Work, claim, finish_alone
from tasks.plans.plan import no_worker_message, plan_state
from tests.plans.conftest import make_plan, run

__all__ = ["make_plan", "run"]


@pytest.fixture
def warnings(caplog, monkeypatch):
    """Return a function that returns what was logged since its last call."""
    caplog.set_level(logging.INFO, "of a flow run")
    monkeypatch.setattr(remote, "get_run_logger", lambda: logging.getLogger("of a flow run"))

    def warnings():
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    return warnings


def alarm(patience_s=0, waiting="", model=None):
    return IdleAlarm(model=model, waiting=dict.fromkeys(("extract", "infer"), lambda: waiting), patience_s=patience_s)


def missing(warnings):
    return [message.split()[1] for message in warnings()]


def test_a_plan_that_nobody_works_on_is_reported_with_the_commands_that_start_workers(db, make_plan, warnings):
    alarm(model="hub/one").check(plan_state(db, make_plan().plan_id))

    extract, infer = warnings()
    assert extract == "No extract worker has a shard: start one by `reelabel worker extract`."
    command = "reelabel worker infer --model hub/one"
    assert infer == f"No infer worker has a shard: start one by `{command}`, unless one is loading its model."


def test_a_stage_is_missed_only_while_it_has_work_that_nobody_does(db, make_plan, warnings):
    plan = make_plan(shards=2)

    def check():
        alarm().check(plan_state(db, plan.plan_id))
        return missing(warnings)

    def lease(work):
        return claim(db, plan.plan_id, work, holder="there", lease_s=60)

    first = lease(Work.EXTRACT)
    assert check() == []  # an infer worker may wait for it
    finish_alone(db, first, state="extracted")
    assert check() == ["infer"]  # the other one may be held back until it is answered
    answering = lease(Work.INFER)
    assert check() == []
    finish_alone(db, answering, state="done")
    assert check() == ["extract"]
    second = lease(Work.EXTRACT)
    assert check() == []
    finish_alone(db, second, state="extracted")
    finish_alone(db, lease(Work.INFER), state="done")
    assert check() == []


def test_what_the_flow_runs_of_a_stage_wait_for_is_reported_with_it(db, make_plan, warnings):
    alarm(waiting="1 flow run of extract/cpu in work pool cpu, which is paused").check(
        plan_state(db, make_plan().plan_id)
    )

    assert warnings()[0].endswith(
        "`reelabel worker extract`; 1 flow run of extract/cpu in work pool cpu, which is paused."
    )


def test_workers_get_time_to_start(db, make_plan, warnings):
    alarm(patience_s=60).check(plan_state(db, make_plan().plan_id))

    assert warnings() == []


def test_the_name_of_a_model_is_quoted_for_a_shell():
    assert "`reelabel worker infer --model '/models/my model'`" in no_worker_message("infer", model="/models/my model")
