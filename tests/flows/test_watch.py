import io
import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from prefect import flow, tags
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId, FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.schedules import CronSchedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.flow_engine import run_flow
from prefect.states import Cancelled, Pending
from pydantic import SecretStr
from sqlalchemy import delete, select

from flows.run.flow_run import ARRIVED, write_error_file
from flows.run.names import on_demand
from flows.run.run_flow import fail_with_message
from flows.schedule.deploy import deploy_flows
from flows.watch import start_new_runs, watch
from infra.database.connect import connected
from infra.embedded import export
from infra.errors import ManifestError
from infra.settings import RunSettings, WatchSettings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import ARRIVAL, DESCRIPTION
from tasks.demo.clips import ENCODINGS, draw_clip, write_clip
from tests.wait import until

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(scope="module")
def deployed(prefect_services, prefect_api):  # noqa: ARG001 - where it deploys
    # Named, since another module may have left deployments of the remote executor, which have no limit.
    local = prefect_services.model_copy(update={"run": RunSettings(executor="local")})
    return {plan.name for plan in deploy_flows(local)}


@pytest.fixture
def engine(prefect_services):
    with connected(prefect_services.database) as engine:
        yield engine


@pytest.fixture
def objects(prefect_services):
    return ObjectStore(prefect_services.store)


@pytest.fixture
def folder(prefect_services):
    return f"{prefect_services.store.uri}/in/{secrets.token_hex(6)}"


@pytest.fixture
def look(client, engine, objects, folder, deployed):  # noqa: ARG001 - what it starts
    """Check the folder; the runs that it starts are cancelled, because their answers are not needed."""

    def run(manifests=f"{folder}/*.parquet", **options):
        started = start_new_runs(client, engine, objects, manifests=manifests, dataset="d", **options)
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


def test_files_of_errors_are_no_manifests(look, objects, folder):
    objects.replace(f"{folder}/b.parquet.error.txt", b"what is wrong with b.parquet")

    assert look(f"{folder}/*") == []


def test_a_name_that_is_not_utf8_keeps_no_other_manifest_from_being_started(look, client, tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"one")
    (tmp_path / os.fsdecode(b"\xff.parquet")).write_bytes(b"two")

    with pytest.raises(ConfigurationError, match="is not UTF-8; rename it"):
        look(f"{tmp_path}/*.parquet")

    arrived = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[ARRIVED])), sort=FlowRunSort.EXPECTED_START_TIME_DESC
    )
    [started] = [run for run in arrived if run.parameters["manifest"] == f"{tmp_path}/a.parquet"]
    client.set_flow_run_state(started.id, Cancelled(), force=True)


def deployment_of(client, flow_run):
    deployment = client.read_deployment(flow_run.deployment_id)
    return f"{client.read_flow(deployment.flow_id).name}/{deployment.name}"


def test_a_manifest_starts_the_flow_that_the_watch_names(look, client, objects, folder):
    objects.replace(f"{folder}/a.parquet", b"one")
    [answering] = look()
    objects.replace(f"{folder}/b.parquet", b"two")
    [describing] = look(starts="describe")

    assert deployment_of(client, answering) == "classify/on-demand"
    assert deployment_of(client, describing) == "describe/on-demand"
    assert describing.parameters == {"manifest": f"{folder}/b.parquet", "dataset": "d"}
    assert ARRIVED in describing.tags


def test_a_watch_can_only_start_what_a_manifest_can(client, deployed):
    assert "watch/manifests" in deployed
    with pytest.raises(ConfigurationError, match=r"^Starts: must be 'classify' or 'describe'\.$"):
        watch(manifests="s3://b/*.parquet", starts="backfill")
    form = client.read_deployment_by_name("watch/manifests").parameter_openapi_schema["properties"]["starts"]
    assert (form["title"], form["enum"], form["default"]) == ("Starts", ["classify", "describe"], "classify")


@pytest.fixture
def looking(client):
    """A deployment of the watch that no worker sees, and that is not due."""
    monthly = DeploymentScheduleCreate(schedule=CronSchedule(cron="0 0 1 * *", timezone="UTC"))
    deployment_id = client.create_deployment(client.create_flow(watch), name="looking", schedules=[monthly])
    yield deployment_id
    client.delete_deployment(deployment_id)


@pytest.mark.usefixtures("deployed")
def test_a_scheduled_look_that_finds_nothing_leaves_no_flow_run(
    client, looking, objects, folder, prefect_services, monkeypatch
):
    for name, value in export(prefect_services).items():
        monkeypatch.setenv(name, value)
    this = DeploymentFilter(id=DeploymentFilterId(any_=[looking]))
    until(lambda: len(client.read_flow_runs(deployment_filter=this)) >= 3, 60)

    def look(flow_run):
        client.set_flow_run_state(flow_run.id, Pending(), force=True)
        run_flow(watch, flow_run=flow_run, parameters={"manifests": f"{folder}/*.parquet"}, return_type="state")

    skipped, nothing, something = client.read_flow_runs(deployment_filter=this)[:3]
    client.set_flow_run_state(skipped.id, Cancelled(), force=True)
    look(nothing)
    objects.replace(f"{folder}/a.parquet", b"one")
    look(something)

    for gone in (skipped, nothing):
        with pytest.raises(ObjectNotFound):
            client.read_flow_run(gone.id)
    assert client.read_flow_run(something.id).state.message == "Started runs on 1 new manifest."
    [started] = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[ARRIVED])),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=1,
    )
    client.set_flow_run_state(started.id, Cancelled(), force=True)
    assert started.parameters["manifest"] == f"{folder}/a.parquet"


def test_the_faults_of_a_manifest_are_written_beside_it_until_it_is_valid(objects, folder, prefect_services):
    manifest = f"{folder}/a.parquet"

    @flow(validate_parameters=False)
    @fail_with_message
    def run(fault: str | None = None):
        with write_error_file(manifest, prefect_services):
            if fault:
                raise ManifestError(fault)
        return "done"

    with tags(ARRIVED):
        assert run("Column prompt is missing.", return_state=True).is_failed()
        error = objects.read(f"{manifest}.error.txt")
        run()
    assert error == b"Column prompt is missing.\n"
    assert not list(objects.list(folder))
    assert run("Column prompt is missing.", return_state=True).is_failed()
    assert not list(objects.list(folder))  # whoever started it by hand sees the message


def test_a_login_that_may_only_read_manifests_fails_no_run(folder, prefect_services):
    store = replace(prefect_services.store, access_key_id=SecretStr("reader"), secret_access_key=SecretStr("no key"))
    settings = prefect_services.model_copy(update={"store": store})

    @flow(validate_parameters=False)
    @fail_with_message
    def run(fault: str | None = None):
        with write_error_file(f"{folder}/a.parquet", settings):
            if fault:
                raise ManifestError(fault)
        return "done"

    with tags(ARRIVED):
        assert run() == "done"
        assert run("Column prompt is missing.", return_state=True).message == "Column prompt is missing."


def test_a_version_that_returns_after_another_one_is_started_again(look, objects, folder):
    runs = []
    for content in (b"one", b"another", b"one", b"another"):
        objects.replace(f"{folder}/a.parquet", content)
        runs += look()
        assert look() == []

    assert len({run.id for run in runs}) == 4


def test_a_manifest_that_a_restored_database_does_not_know_is_started_again(look, engine, objects, folder):
    objects.replace(f"{folder}/a.parquet", b"one")
    runs = []
    for _ in range(3):
        runs += look()
        assert look() == []
        with engine.begin() as connection:
            connection.execute(delete(ARRIVAL).where(ARRIVAL.c.manifest_uri.startswith(folder)))

    assert len({run.id for run in runs}) == 3


def test_two_simultaneous_watchers_start_a_manifest_once(look, objects, folder):
    for number in range(3):
        objects.replace(f"{folder}/{number}.parquet", b"one")

    with ThreadPoolExecutor(4) as threads:
        looks = [future.result() for future in [threads.submit(look) for _ in range(4)]]

    assert len({run.id for started in looks for run in started}) == 3


@pytest.mark.system
def test_the_deployment_watches_by_itself(deployed, objects, folder):
    objects.replace(f"{folder}/a.parquet", b"no Parquet file")

    looked = run_deployment("watch/manifests", parameters={"manifests": f"{folder}/*.parquet"}, poll_interval=1)

    assert "watch/manifests" in deployed
    assert looked.state.message == "Started runs on 1 new manifest."


@pytest.mark.system
@pytest.mark.usefixtures("deployed")
def test_videos_without_a_question_are_described_when_their_manifest_arrives(client, engine, objects, folder, tmp_path):
    clip = tmp_path / f"a.{ENCODINGS[0].container}"
    write_clip(clip, draw_clip(np.random.default_rng(7))[1], ENCODINGS[0])
    manifest = io.BytesIO()
    pl.DataFrame({"job_id": ["a"], "video_uri": [str(clip)]}).write_parquet(manifest)
    objects.replace(f"{folder}/arrived.parquet", manifest.getvalue())

    dataset = folder[-12:]
    watched = {"manifests": f"{folder}/*.parquet", "dataset": dataset, "starts": "describe"}
    run_deployment("watch/manifests", parameters=watched, poll_interval=1)

    [started] = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[ARRIVED])),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=1,
    )
    until(lambda: client.read_flow_run(started.id).state.is_final(), 300)  # noqa: PLW0108 - of each state
    assert started.parameters["manifest"] == f"{folder}/arrived.parquet"
    assert client.read_flow_run(started.id).state.message == "Reconciled: 1 job = 1 description + 0 failures."
    with engine.connect() as connection:
        query = select(DESCRIPTION.c.job_id, DESCRIPTION.c.frames_used).where(DESCRIPTION.c.dataset == dataset)
        assert connection.execute(query).all() == [("a", 16)]


@pytest.mark.system
@pytest.mark.usefixtures("deployed")
def test_runs_on_this_machine_go_one_after_the_other(client, engine, objects, folder):
    for name in "ab":
        objects.replace(f"{folder}/{name}.parquet", b"no Parquet file")

    runs = start_new_runs(client, engine, objects, manifests=f"{folder}/*.parquet", dataset="d")

    until(lambda: all(client.read_flow_run(run.id).state.is_final() for run in runs), 300)
    histories = [client.read_flow_run_states(run.id) for run in runs]
    first, second = sorted(histories, key=lambda states: max(state.timestamp for state in states))
    began = min(state.timestamp for state in second if state.is_running())
    assert all(state.timestamp <= began for state in first)
    assert {state.name for state in first if state.is_final()} == {"Failed"}
    for name in "ab":
        error = objects.read(f"{folder}/{name}.parquet.error.txt").decode()
        assert error.startswith(f"{folder}/{name}.parquet is not a Parquet file; ")


@pytest.fixture
def pods(client):
    """Name of a work pool each of whose runs has a pod of its own."""
    name = client.create_work_pool(WorkPoolCreate(name="pods", type="kubernetes")).name
    yield name
    client.delete_work_pool(name)


@pytest.mark.system
def test_the_limit_of_simultaneous_runs_holds_on_one_machine_and_not_in_remote_pools(client, pods, prefect_services):
    def limit(*, pool=prefect_services.prefect.work_pool, **run):
        prefect = prefect_services.prefect.model_copy(update={"work_pool": pool})
        deploy_flows(prefect_services.model_copy(update={"run": RunSettings(**run), "prefect": prefect}))
        found = client.read_deployment_by_name(on_demand("classify")).global_concurrency_limit
        return found and found.limit

    assert limit(executor="local") == 1
    assert limit(executor="remote") is None
    assert limit(max_concurrent_runs=3) == 3
    assert limit(pool=pods) is None


@pytest.mark.system
def test_the_schedule_leaves_no_flow_run_if_nothing_arrives(client, folder, prefect_services, monkeypatch):
    often = CronSchedule(cron="* * * * * */5", timezone="UTC")
    monkeypatch.setattr("flows.schedule.deployments._EACH_MINUTE", often)
    deploy_flows(prefect_services.model_copy(update={"watch": WatchSettings(manifests=f"{folder}/*.parquet")}))
    deployment = client.read_deployment_by_name("watch/manifests")
    this = DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id]))

    known = client.read_flow_runs(deployment_filter=this)
    earlier = {run.id for run in known if run.state and not run.state.is_scheduled()}
    begun, left, deadline = set(), [], time.monotonic() + 240
    while len(begun) < 3 or left:
        assert time.monotonic() < deadline, (begun, left)
        if len(begun) >= 3:
            client.pause_deployment(deployment.id)
        runs = client.read_flow_runs(deployment_filter=this)
        stated = [run for run in runs if run.state]  # Prefect writes a run before its state
        left = [run.state.name for run in stated if not run.state.is_scheduled() and run.id not in earlier]
        begun |= {run.id for run in stated if run.state.is_running()}
        time.sleep(0.2)

    client.delete_deployment(deployment.id)


def test_manifests_are_started_in_the_order_of_their_times(look, tmp_path):
    for name, modified_s in {"a": 3, "b": 1, "c": 2}.items():
        (tmp_path / f"{name}.parquet").write_bytes(b"one")
        os.utime(tmp_path / f"{name}.parquet", (modified_s, modified_s))

    started = look(f"{tmp_path}/*.parquet")

    assert [run.parameters["manifest"][-9:] for run in started] == ["b.parquet", "c.parquet", "a.parquet"]
