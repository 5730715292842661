import json
import time
from uuid import uuid4

import pytest
from prefect.states import Crashed, Failed, Pending, Running, Submitting

from flows.run.heartbeat import heartbeat
from flows.run.names import TAG
from flows.run.progress import Progress
from flows.runs import classify
from flows.schedule import automations
from flows.schedule.automations import apply_automations
from infra.database.connect import connected
from infra.settings import NotifySettings
from tests.http_server import Handler, serve
from tests.wait import until

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture
def hook():
    """Address of a web server, and what was posted to it."""
    posted = []

    class Hook(Handler):
        def do_POST(self):
            posted.append(json.loads(self.read_body())["text"])
            self.respond(200)

    with serve(Hook) as server:
        yield f"{server.url}/hook?token=secret-token", posted


@pytest.fixture
def engine(prefect_services):
    with connected(prefect_services.database) as engine:
        yield engine


def wait_for(posted, text):
    until(lambda: any(text in line for line in posted), details=lambda: posted)


def test_trouble_is_reported_once_to_the_configured_address(client, hook, engine, prefect_services, monkeypatch):
    url, posted = hook
    monkeypatch.setattr("flows.run.heartbeat._FAILURE_JOBS", 10)
    monkeypatch.setattr("flows.run.heartbeat._FAILURE_RATE", 0.5)
    monkeypatch.setattr("flows.run.heartbeat._STALL_S", 1)
    notify = NotifySettings(webhook_url=url)
    apply_automations(client, prefect_services.model_copy(update={"notify": notify}))
    run_id, progress = uuid4(), Progress(processes=1)

    with heartbeat(engine, run_id, progress, beat_s=0.1):
        progress.tally["jobs_labelled"] = 4
        progress.tally["jobs_failed"] = 5
        time.sleep(0.5)
        progress.tally["jobs_failed"] = 6
        wait_for(posted, "6 of 10 jobs failed (60%)")
        wait_for(posted, "no job has ended for 1 s; 10 jobs had ended before")
    failed = client.create_flow_run(classify, name="my night", parameters={"manifest": "x"}, tags=[TAG])
    client.set_flow_run_state(failed.id, Running(), force=True)
    client.set_flow_run_state(failed.id, Failed(message="No such bucket."), force=True)

    wait_for(posted, "my night Failed: No such bucket.")
    assert len([line for line in posted if str(run_id) in line]) == 2
    apply_automations(client, prefect_services)
    names = {automation.name for automation in client.read_automations()}
    assert names == {
        "reelabel: end lost runs",
        "reelabel: end runs that never started",
        "reelabel: restart lost runs",
    }
    block = client.read_block_document_by_name("reelabel", "custom-webhook", include_secrets=False)
    assert "secret-token" not in str(block.data)


@pytest.mark.system
def test_a_run_that_a_worker_claimed_but_never_began_is_ended(client, monkeypatch, prefect_services):
    monkeypatch.setattr(automations, "_PROCESS_START_S", 10)  # the shortest that Prefect takes
    apply_automations(client, prefect_services)
    begun, lost = (client.create_flow_run(classify, parameters={"manifest": "x"}, tags=[TAG]) for _ in range(2))
    for run in (begun, lost):
        client.set_flow_run_state(run.id, Pending(), force=True)
        client.set_flow_run_state(run.id, Submitting(), force=True)
        if run is begun:
            client.set_flow_run_state(begun.id, Running(), force=True)

    until(lambda: client.read_flow_run(lost.id).state.is_crashed(), 60)  # noqa: PLW0108 - of each state

    message = client.read_flow_run(lost.id).state.message
    assert message == "Claimed by a worker, but not started within 10 seconds: the node was lost."
    # Were it ended, too, it would have been before, for it was taken before.
    assert client.read_flow_run(begun.id).state.is_running()


@pytest.fixture
def deployment_id(client):
    """A deployment that no worker sees, for it has no pool."""
    deployment_id = client.create_deployment(client.create_flow(classify), name="crashing")
    yield deployment_id
    client.delete_deployment(deployment_id)


@pytest.mark.parametrize("has_begun", [False, True], ids=["never began", "began"])
def test_a_crashed_run_is_restarted_once(client, deployment_id, has_begun, prefect_services):
    apply_automations(client, prefect_services)

    def create():
        return client.create_flow_run_from_deployment(deployment_id, parameters={"manifest": "x"}, tags=[TAG]).id

    def crash(run_id):
        client.set_flow_run_state(run_id, Pending())
        if has_begun:
            client.set_flow_run_state(run_id, Running())
        client.set_flow_run_state(run_id, Crashed(message="Its process ended."))

    def started_again(run_id):
        until(lambda: not client.read_flow_run(run_id).state.is_crashed())
        return client.read_flow_run(run_id)

    run_id, later_id = create(), create()
    crash(run_id)
    run = started_again(run_id)
    assert (run.state.name, run.state.message) == ("AwaitingRetry", "The run crashed and is being restarted, once.")

    assert run.run_count == int(has_begun)
    crash(run_id)
    crash(later_id)  # events are looked at in order: once this one is started again, the other one would have been
    assert started_again(later_id).state.name == "AwaitingRetry"
    assert client.read_flow_run(run_id).state.is_crashed()
