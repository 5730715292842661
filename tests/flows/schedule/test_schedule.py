import os
import re
import secrets
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.flow_engine import run_flow
from prefect.states import Completed

from flows.cli.operations.schedule import with_nightly
from flows.cli.options import choose
from flows.runs import classify
from flows.schedule.catch_up import ScheduledRun, find_scheduled_runs, start_scheduled_run
from flows.schedule.deploy import deploy_flows
from infra.database.connect import connected
from infra.embedded import export
from infra.settings import DescribeSettings, NightlySettings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.results.runs import close_run, open_run
from tests.command_line import reelabel
from tests.results.rows import SPEC
from tests.wait import until

pytestmark = pytest.mark.xdist_group("prefect")

NIGHTLY = DeploymentFilter(name=DeploymentFilterName(any_=["nightly"]))


@pytest.fixture(scope="module")
def environment(prefect_services):
    return os.environ | export(prefect_services) | {"COLUMNS": "200"}


@pytest.fixture
def deploy(prefect_services, prefect_api):  # noqa: ARG001 - where it deploys
    """Deploy with fields of the section nightly, as for the first time; at the end, remove the deployment."""
    remove_nightly()

    def run(**nightly):
        deploy_flows(with_nightly(prefect_services, choose(NightlySettings, nightly)))

    yield run
    remove_nightly()


def remove_nightly():
    with get_client(sync_client=True) as client, suppress(ObjectNotFound):
        client.delete_deployment(client.read_deployment_by_name("classify/nightly").id)


@pytest.fixture
def folder(prefect_services):
    """A prefix on S3 that no other test knows."""
    return f"{prefect_services.store.uri}/scheduled/{secrets.token_hex(6)}"


def completed(client):
    """Wait for the first flow run of the schedule that ends well; some are skipped while it runs."""

    def completed_runs():
        runs = client.read_flow_runs(deployment_filter=NIGHTLY)
        return [run for run in runs if run.auto_scheduled and run.state.is_completed()]

    return min(until(completed_runs, 120), key=lambda run: run.expected_start_time)


@pytest.mark.system
def test_a_schedule_fires_and_a_scheduled_run_without_a_manifest_succeeds(client, deploy, folder):
    zone = "Pacific/Kiritimati"  # where it is tomorrow already
    manifest = folder + "/dt={scheduled_date}/*.parquet"

    deploy(manifest=manifest, cron="* * * * * */5", timezone=zone, when_running="skip")

    run = completed(client)
    day = run.expected_start_time.astimezone(ZoneInfo(zone)).date()
    assert run.state.message == f"Nothing to do: No file matches {folder}/dt={day}/*.parquet."
    assert run.name.startswith(f"classify {folder.rpartition('/')[2]}-{day} {day} ")


@pytest.mark.parametrize(
    ("nightly", "message"),
    [
        ({"cron": "61 2 * * *"}, "nightly.cron is invalid"),
        ({"cron": "2 * *"}, "--cron 2 * *: '2 * *' is not a cron schedule"),
        ({"timezone": "Mars"}, "--timezone Mars: 'Mars' is not a time zone"),
        ({"when_running": "wait"}, "--when-running wait: must be 'queue' or 'skip'"),
        ({"manifest": "s3://b/{date}.parquet"}, "{date} in s3://b/{date}.parquet is not a date placeholder"),
        ({"manifest": "s3://b/{scheduled_dat}.parquet"}, "{scheduled_dat} in s3://b/{scheduled_dat}.parquet is not"),
        ({"manifest": "/gone.parquet"}, "There is no manifest at /gone.parquet; correct its name, or deploy"),
    ],
)
def test_an_invalid_schedule_is_refused(deploy, nightly, message):
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        deploy(**nightly)


def test_a_missing_manifest_of_descriptions_is_refused_as_well(prefect_services, prefect_api):  # noqa: ARG001
    settings = prefect_services.model_copy(update={"describe": DescribeSettings(nightly_manifest="/gone.parquet")})

    with pytest.raises(ConfigurationError, match=r"There is no manifest at /gone\.parquet; correct its name"):
        deploy_flows(settings, dry_run=True)


def test_a_missing_manifest_can_be_deployed_on_request(deploy, folder, prefect_services):
    with pytest.raises(ConfigurationError, match="There is no manifest at"):
        deploy(manifest=f"{folder}/jobs.parquet")

    deploy(manifest=f"{folder}/jobs.parquet", may_be_empty=True)
    ObjectStore(prefect_services.store).replace(f"{folder}/other.parquet", b"a manifest")
    deploy(manifest=f"{folder}/other.parquet")


@pytest.fixture
def run(client, deploy, folder, prefect_services, monkeypatch):
    """Run a run of the schedule here, so many days ago, with or without its manifest; return its last state."""
    for name, value in export(prefect_services).items():
        monkeypatch.setenv(name, value)
    deploy(manifest=folder + "/{scheduled_date}.parquet")
    with suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name="nobody", type="process"))
    nightly = client.read_deployment_by_name("classify/nightly")
    client.update_deployment(nightly.id, DeploymentUpdate(work_pool_name="nobody"))

    def run(days_ago, *, with_manifest=False):
        at = at_two(datetime.now(UTC).date() - timedelta(days=days_ago))
        if with_manifest:
            ObjectStore(prefect_services.store).replace(f"{folder}/{at.date()}.parquet", b"no Parquet file")
        flow_run = start_scheduled_run(client, ScheduledRun(at=at, manifest="", state="missed", attempts=0))
        run_flow(classify, flow_run=flow_run, parameters=flow_run.parameters, return_type="state")
        return client.read_flow_run(flow_run.id)

    yield run
    client.delete_work_pool("nobody")


@pytest.mark.system
def test_nights_without_a_manifest_end_well_and_are_named_by_their_dates(run):
    other = run(7, with_manifest=True)
    empty = [run(days_ago) for days_ago in (6, 5, 4)]

    assert "is not a Parquet file" in other.state.message
    for each in empty:
        assert each.state.is_completed()
        assert each.state.message.startswith("Nothing to do: There is no manifest file at")
    date = datetime.now(UTC).date() - timedelta(days=4)
    assert empty[-1].name == f"classify {empty[-1].name.split()[1]} {date} 02:00"
    assert empty[-1].name.split()[1].endswith(f"-{date}")  # the dataset of that date


@pytest.fixture
def engine(prefect_services):
    with connected(prefect_services.database) as engine:
        yield engine


def finish(engine, manifest, state="done"):
    facts = {"dataset": "d", "manifest_uri": manifest, "kind": "classify", "host": "h"}
    run_id = uuid4()
    open_run(engine, run_id=run_id, spec=SPEC, facts=facts | {"jobs_total": 0, "jobs_skipped": 0})
    if state != "running":
        close_run(engine, run_id, state=state, message="")


def test_missed_nights_are_found_by_their_rows_and_caught_up_once(client, deploy, engine, folder, prefect_services):
    objects = ObjectStore(prefect_services.store)
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=number) for number in range(6, 0, -1)]
    of_day = {day: f"{folder}/{day:%Y/%m/%d}.parquet" for day in days}
    done, running, failed, never, empty, waiting = days
    for day in days:
        if day != empty:
            objects.replace(of_day[day], b"a manifest")
    finish(engine, of_day[done])
    finish(engine, of_day[running], "running")
    finish(engine, of_day[failed], "failed")
    deploy(manifest=folder + "/{scheduled_date:%Y/%m/%d}.parquet")
    nobody_yet = start_scheduled_run(client, ScheduledRun(at=at_two(waiting), manifest="", state="missed", attempts=0))

    scheduled = find_scheduled_runs(client, engine, objects, since=days[0], until=days[-1])

    client.delete_flow_run(nobody_yet.id)
    assert {run.at.date(): run.state for run in scheduled} == {
        done: "finished",
        running: "running",
        failed: "missed",
        never: "missed",
        empty: "empty",
        waiting: "waiting",
    }


def at_two(day):
    return datetime(day.year, day.month, day.day, 2, tzinfo=UTC)


def test_a_range_of_days_excludes_the_moment_after_its_last_day(client, deploy, engine, folder, prefect_services):
    day = datetime.now(UTC).date() - timedelta(days=2)
    deploy(manifest=folder + "/{scheduled_time}.parquet", cron="0 0,12 * * *")

    scheduled = find_scheduled_runs(client, engine, ObjectStore(prefect_services.store), since=day, until=day)
    to_the_end_of_time = find_scheduled_runs(
        client, engine, ObjectStore(prefect_services.store), since=day, until=date(9999, 12, 31)
    )

    assert [(run.at.date(), run.at.hour) for run in scheduled] == [(day, 0), (day, 12)]
    assert len(to_the_end_of_time) >= 4


def test_dates_are_those_of_the_time_zone_that_runs_take(client, deploy, engine, folder, prefect_services):
    day = datetime.now(UTC).date() - timedelta(days=2)
    deploy(manifest=folder + "/{scheduled_date}.parquet", cron="0 2 * * *")
    nightly = client.read_deployment_by_name("classify/nightly")
    client.update_deployment(
        nightly.id, DeploymentUpdate(parameters=nightly.parameters | {"timezone": "America/Los_Angeles"})
    )

    [run] = find_scheduled_runs(client, engine, ObjectStore(prefect_services.store), since=day, until=day)

    assert run.manifest == f"{folder}/{day - timedelta(days=1)}.parquet"


@pytest.mark.usefixtures("idle_worker")
def test_a_missed_run_is_not_started_again_before_its_run_has_ended(client, deploy, engine, folder, prefect_services):
    objects = ObjectStore(prefect_services.store)
    day = datetime.now(UTC).date() - timedelta(days=1)
    objects.replace(f"{folder}/{day}.parquet", b"a manifest")
    deploy(manifest=folder + "/{scheduled_date}.parquet")
    [run] = find_scheduled_runs(client, engine, objects, since=day, until=day)

    first, again = start_scheduled_run(client, run), start_scheduled_run(client, run)
    client.set_flow_run_state(first.id, Completed(), force=True)
    [after] = find_scheduled_runs(client, engine, objects, since=day, until=day)
    other = start_scheduled_run(client, after)

    assert first.id == again.id != other.id
    assert (run.attempts, after.attempts, after.state) == (0, 1, "missed")
    client.delete_flow_run(other.id)


@pytest.mark.usefixtures("idle_worker")
def test_a_run_in_an_hour_that_occurs_twice_is_not_started_again(client, deploy, engine, folder, prefect_services):
    objects = ObjectStore(prefect_services.store)
    day = date(2025, 10, 26)  # when clocks were set back from three to two
    objects.replace(f"{folder}/{day}.parquet", b"a manifest")
    deploy(manifest=folder + "/{scheduled_date}.parquet", timezone="Europe/Berlin")
    [run] = find_scheduled_runs(client, engine, objects, since=day, until=day)

    first = start_scheduled_run(client, run)
    [again] = find_scheduled_runs(client, engine, objects, since=day, until=day)

    client.delete_flow_run(first.id)
    assert (run.state, again.state) == ("missed", "waiting")


@pytest.mark.system
def test_one_command_catches_up(deploy, environment, folder, prefect_services):
    day = datetime.now(UTC).date() - timedelta(days=2)
    ObjectStore(prefect_services.store).replace(f"{folder}/{day}.parquet", b"text")
    deploy(manifest=folder + "/{scheduled_date}.parquet")

    chosen = ("catch-up", "--since", str(day), "--until", str(day))
    foretold, caught_up = reelabel(environment, *chosen, "--dry-run"), reelabel(environment, *chosen)

    assert foretold.returncode == caught_up.returncode == 1
    assert f"{day} 02:00 will fail, so the command ends with exit code 1: {folder}" in " ".join(foretold.stdout.split())
    assert f"{day} 02:00 UTC" in caught_up.stdout, caught_up.stderr
    assert f"{folder}/{day}.parquet is not a Parquet file" in " ".join(caught_up.stdout.split())


def test_without_a_schedule_nothing_can_be_caught_up(client, deploy, engine, prefect_services):
    deploy()

    with pytest.raises(ConfigurationError, match="classify/nightly has no schedule with a manifest"):
        find_scheduled_runs(client, engine, ObjectStore(prefect_services.store), since=date(2026, 11, 1), until=None)
