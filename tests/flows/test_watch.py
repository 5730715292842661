import secrets
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments import run_deployment
from prefect.states import Cancelled

from flows.run.names import ON_DEMAND
from flows.schedule.deploy import deploy_flows
from flows.watch import start_new_runs
from infra.database.connect import connect
from infra.settings import RunSettings
from reelabel.sources.object_store import ObjectStore

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(scope="module")
def deployed(prefect_services, prefect_api):  # noqa: ARG001 - where it deploys
    return {plan.name for plan in deploy_flows(prefect_services)}


@pytest.fixture
def engine(prefect_services):
    engine = connect(prefect_services.database)
    yield engine
    engine.dispose()


@pytest.fixture
def objects(prefect_services):
    return ObjectStore(prefect_services.store)


@pytest.fixture
def folder(prefect_services):
    return f"{prefect_services.store.uri}/in/{secrets.token_hex(6)}"


@pytest.fixture
def client(prefect_api):  # noqa: ARG001 - which it talks to
    with get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def look(client, engine, objects, folder, deployed):  # noqa: ARG001 - what it starts
    """Look at the folder; what it starts is taken back, for nobody here needs its answers."""

    def run():
        started = start_new_runs(client, engine, objects, manifests=f"{folder}/*.parquet", dataset="d")
        for flow_run in started:
            client.set_flow_run_state(flow_run.id, Cancelled(), force=True)
        return started

    return run


def test_a_manifest_is_started_once_for_each_of_its_versions(look, objects, folder):
    assert look() == []
    objects.replace(f"{folder}/a.parquet", b"one")
    objects.replace(f"{folder}/a.txt", b"no manifest")

    [first] = look()

    assert first.parameters == {"manifest": f"{folder}/a.parquet", "dataset": "d"}
    assert look() == []
    objects.replace(f"{folder}/a.parquet", b"another")
    objects.replace(f"{folder}/b.parquet", b"new")
    assert [run.parameters["manifest"][-9:] for run in look()] == ["a.parquet", "b.parquet"]
    assert look() == []


def test_a_version_that_is_back_after_another_one_is_started_again(look, objects, folder):
    runs = []
    for content in (b"one", b"another", b"one", b"another"):
        objects.replace(f"{folder}/a.parquet", content)
        runs += look()
        assert look() == []

    assert len({run.id for run in runs}) == 4


def test_two_who_look_at_once_start_it_once(look, objects, folder):
    for number in range(3):
        objects.replace(f"{folder}/{number}.parquet", b"one")

    with ThreadPoolExecutor(4) as threads:
        looks = [future.result() for future in [threads.submit(look) for _ in range(4)]]

    assert len({run.id for started in looks for run in started}) == 3


@pytest.mark.system
def test_the_deployment_looks_by_itself(deployed, objects, folder):
    objects.replace(f"{folder}/a.parquet", b"no Parquet file")

    looked = run_deployment("watch/manifests", parameters={"manifests": f"{folder}/*.parquet"}, poll_interval=1)

    assert "watch/manifests" in deployed
    assert looked.state.message == "Started runs on 1 new manifest."


@pytest.mark.system
@pytest.mark.usefixtures("deployed")
def test_runs_that_work_here_go_one_after_the_other(client, engine, objects, folder):
    for name in "ab":
        objects.replace(f"{folder}/{name}.parquet", b"no Parquet file")

    runs = start_new_runs(client, engine, objects, manifests=f"{folder}/*.parquet", dataset="d")

    deadline = time.monotonic() + 300
    while not all(client.read_flow_run(run.id).state.is_final() for run in runs):
        assert time.monotonic() < deadline
        time.sleep(1)
    histories = [client.read_flow_run_states(run.id) for run in runs]
    first, second = sorted(histories, key=lambda states: max(state.timestamp for state in states))
    began = min(state.timestamp for state in second if state.is_running())
    assert all(state.timestamp <= began for state in first)
    assert {state.name for state in first if state.is_final()} == {"Failed"}


@pytest.fixture
def pods(client):
    """Name of a work pool each of whose runs has a pod of its own."""
    name = client.create_work_pool(WorkPoolCreate(name="pods", type="kubernetes")).name
    yield name
    client.delete_work_pool(name)


def test_as_many_runs_work_here_at_once_as_are_set_and_any_number_elsewhere_or_in_pods(client, pods, prefect_services):
    def limit(*, pool=prefect_services.prefect.work_pool, **run):
        prefect = prefect_services.prefect.model_copy(update={"work_pool": pool})
        deploy_flows(prefect_services.model_copy(update={"run": RunSettings(**run), "prefect": prefect}))
        found = client.read_deployment_by_name(ON_DEMAND).global_concurrency_limit
        return found and found.limit

    assert limit() == 1
    assert limit(executor="remote") is None
    assert limit(max_concurrent_runs=3) == 3
    assert limit(pool=pods) is None
