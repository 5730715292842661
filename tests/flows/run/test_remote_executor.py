"""Flow runs that do the work of a run elsewhere."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging import disable_run_logger
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import AwaitingRetry, Completed, Crashed, Failed, Pending, Running
from sqlalchemy import update

from flows.run import remote
from flows.run.progress import Progress
from flows.run.remote import _Flows, execute_remotely
from flows.schedule.deploy import deploy_flows
from infra.processes import free_port
from infra.settings import RunSettings, Settings
from reelabel.errors import ConfigurationError
from tasks.database.tables import SHARD
from tests.plans.conftest import make_plan, run

__all__ = ["make_plan", "run"]

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture
def client(prefect_api):  # noqa: ARG001 - which it talks to
    with get_client(sync_client=True) as client, disable_run_logger():
        yield client


def test_a_retried_run_replaces_the_flow_runs_that_have_ended(client, prefect_services):
    deploy_flows(prefect_services.model_copy(update={"run": RunSettings(executor="remote")}))
    key = str(uuid4())

    def started():
        flows = _Flows(deployment="extract/cpu", count=2, parameters={"plan": None}, key=key)
        flows.start()
        return flows

    first, again = started(), started()
    assert again._ids == first._ids
    assert not again.have_ended()
    for flow_run_id, state in zip(first._ids, (Failed(message="Gone."), Completed()), strict=True):
        client.set_flow_run_state(flow_run_id, state, force=True)
    assert first.have_ended()
    client.set_flow_run_state(first._ids[1], Failed(message="Gone."), force=True)
    with pytest.raises(ConfigurationError, match="All flow runs of extract/cpu ended as Failed: Gone"):
        again.have_ended()

    retried = started()

    assert not {*retried._ids} & {*first._ids}
    assert not retried.have_ended()
    assert started()._ids == retried._ids
    for flow_run_id in (*first._ids, *retried._ids):
        client.delete_flow_run(flow_run_id)


def test_a_crashed_flow_run_has_not_ended_while_it_may_restart(client, prefect_services, monkeypatch):
    deploy_flows(prefect_services.model_copy(update={"run": RunSettings(executor="remote")}))
    for automation in client.read_automations():
        client.delete_automation(automation.id)  # else it would start it again at a moment of its own
    flows = _Flows(deployment="extract/cpu", count=1, parameters={"plan": None}, key=str(uuid4()))
    flows.start()
    [flow_run_id] = flows._ids

    def crash():
        for state in (Pending(), Running(), Crashed(message="Its process ended.")):
            client.set_flow_run_state(flow_run_id, state, force=True)

    crash()
    assert not flows.have_ended()
    client.set_flow_run_state(flow_run_id, AwaitingRetry(), force=True)  # as the automation does
    assert not flows.have_ended()

    crash()
    assert not flows.have_ended()
    monkeypatch.setattr(remote, "_RESTART_DELAY", timedelta())
    with pytest.raises(ConfigurationError, match="All flow runs of extract/cpu ended as Crashed: Its process ended"):
        flows.have_ended()
    client.delete_flow_run(flow_run_id)


def test_flow_runs_that_were_deleted_are_started_again(client, prefect_services):
    deploy_flows(prefect_services.model_copy(update={"run": RunSettings(executor="remote")}))
    flows = _Flows(deployment="extract/cpu", count=2, parameters={"plan": None}, key=str(uuid4()))
    flows.start()
    first, kept = flows._ids
    client.delete_flow_run(first)
    flows.start_if_ended()
    assert flows._ids == [first, kept]

    client.delete_flow_run(kept)
    flows.start_if_ended()

    assert not {*flows._ids} & {first, kept}
    for flow_run_id in flows._ids:
        client.delete_flow_run(flow_run_id)


def test_a_run_goes_on_while_prefect_does_not_answer(client, prefect_services):
    deploy_flows(prefect_services.model_copy(update={"run": RunSettings(executor="remote")}))
    flows = _Flows(deployment="extract/cpu", count=1, parameters={"plan": None}, key=str(uuid4()))
    flows.start()
    [before] = flows._ids

    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}):
        flows.start_if_ended()

    assert flows._ids == [before]
    client.delete_flow_run(before)


def test_a_run_begins_while_prefect_does_not_answer(db, run, make_plan):
    plan, settings = make_plan(shards=1), Settings(run=RunSettings(executor="remote"))
    with db.begin() as connection:
        connection.execute(update(SHARD).values(state="done"))
    begun = SimpleNamespace(key=run, database=db, settings=settings, objects=None)

    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}), disable_run_logger():
        execute_remotely(begun, plan, Progress(processes=1), (), model=None)


def test_first_flow_runs_that_prefect_refuses_are_reported(client, prefect_services):  # noqa: ARG001 - Prefect runs
    deploy_flows(prefect_services.model_copy(update={"run": RunSettings(executor="remote")}))
    flows = _Flows(deployment="extract/cpu", count=1, parameters={"plane": None}, key=str(uuid4()))

    with pytest.raises(PrefectHTTPStatusError, match="plane"):
        flows.start_if_ended()


def test_what_the_flow_runs_of_a_run_wait_for_is_described(client, prefect_services):
    deploy_flows(prefect_services.model_copy(update={"run": RunSettings(executor="remote")}))
    nobody = _Flows(deployment="extract/cpu", count=0, parameters={"plan": None}, key=str(uuid4()))
    flows = replace(nobody, count=2)
    nobody.start()
    flows.start()
    pool = client.read_deployment_by_name("extract/cpu").work_pool_name

    assert nobody.waiting() == ""
    described = flows.waiting()
    client.update_work_pool(pool, WorkPoolUpdate(is_paused=True))
    paused = flows.waiting()
    client.update_work_pool(pool, WorkPoolUpdate(is_paused=False))
    for flow_run_id in flows._ids:
        client.set_flow_run_state(flow_run_id, Running(), force=True)
    running = flows.waiting()
    for flow_run_id in flows._ids:
        client.delete_flow_run(flow_run_id)

    assert described == "2 flow runs of extract/cpu waiting for a Prefect worker of work pool cpu (process)"
    assert paused == "2 flow runs of extract/cpu in work pool cpu, which is paused"
    assert running is None
