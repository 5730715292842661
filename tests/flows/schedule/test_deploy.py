import itertools
import os
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import DeploymentStatus, WorkPoolStatus
from prefect.client.schemas.schedules import CronSchedule

from flows.cli.operations.schedule import with_nightly
from flows.schedule.deploy import deploy_flows
from infra.embedded import export
from infra.settings import ModelSettings, NightlySettings
from reelabel.errors import ConfigurationError
from tasks.demo.clips import make_demo
from tests.command_line import reelabel, reelabel_process
from tests.wait import until

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(scope="module")
def environment(prefect_services):
    return os.environ | export(prefect_services) | {"COLUMNS": "160"}


@pytest.fixture
def client(prefect_api):  # noqa: ARG001 - which it talks to
    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            client.delete_deployment(deployment.id)
        yield client


@pytest.fixture
def deploy(environment, client):  # noqa: ARG001 - without deployments
    """Deploy with options and settings; return the lines of the deployment named first."""

    def run(name, *options, **settings):
        completed = reelabel(
            environment | {f"REELABEL_{key}": value for key, value in settings.items()}, "deploy", *options
        )
        assert completed.returncode == 0, completed.stderr
        lines = completed.stdout.splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith(f"{name}:"))
        own = itertools.takewhile(lambda line: line.startswith("  "), lines[first + 1 :])
        return [lines[first], *(line.strip() for line in own)]

    return run


NIGHTLY, DESCRIBE, WATCH = "classify/nightly", "describe/nightly", "watch/manifests"


def test_a_deploy_changes_only_what_it_names_and_reports_old_and_new_values(deploy, client):
    created = deploy(NIGHTLY, "--manifest", "s3://b/{scheduled_date}/*.parquet", "--timezone", "Pacific/Kiritimati")
    again = deploy(NIGHTLY)
    watched = deploy(NIGHTLY, WATCH_MANIFESTS="s3://b/in/*.parquet")
    moved = deploy(WATCH, "--cron", "30 3 * * *")

    nightly = client.read_deployment_by_name(NIGHTLY)
    at = nightly.schedules[0].schedule
    assert (at.cron, at.timezone, nightly.paused) == ("30 3 * * *", "Pacific/Kiritimati", False)
    assert nightly.parameters["manifest"] == "s3://b/{scheduled_date}/*.parquet"
    assert client.read_deployment_by_name(WATCH).parameters == {"manifests": "s3://b/in/*.parquet"}
    assert "manifest: s3://b/{scheduled_date}/*.parquet" in created
    expected = f"{NIGHTLY}: unchanged, next run {next_at(2, 'Pacific/Kiritimati'):%Y-%m-%d %H:%M %Z}"
    assert (again, watched) == ([expected], [expected])
    assert moved[0].startswith(f"{WATCH}: unchanged, next run ")
    assert deploy(NIGHTLY, "--cron", "0 4 * * *")[1:] == [
        "schedule: 30 3 * * * Pacific/Kiritimati → 0 4 * * * Pacific/Kiritimati"
    ]


def next_at(hour, zone):
    now = datetime.now(ZoneInfo(zone))
    today = now.replace(hour=hour, minute=0, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)


@pytest.mark.system
def test_descriptions_have_a_manifest_of_their_own(deploy, client):
    dated = "dt={scheduled_date}/*.parquet"
    common = {"NIGHTLY_TIMEZONE": "Pacific/Kiritimati", "NIGHTLY_CRON": "0 1 * * *"}
    lacking = deploy(DESCRIBE, "--manifest", f"s3://b/jobs/{dated}", "--dataset", "jobs", **common)
    created = deploy(DESCRIBE, **common, DESCRIBE_NIGHTLY_MANIFEST=f"s3://b/clips/{dated}")

    assert lacking[0] == f"{DESCRIBE}: new, paused until its parameter manifest is set"
    assert "schedule: 0 1 * * * Pacific/Kiritimati" in lacking
    assert created[1:] == [
        "dataset: none → clips-{scheduled_date}",
        f"manifest: none → s3://b/clips/{dated}",
        "paused: yes → no",
    ]
    questions, descriptions = (client.read_deployment_by_name(name) for name in (NIGHTLY, DESCRIBE))
    assert (questions.parameters["manifest"], questions.parameters["dataset"]) == (f"s3://b/jobs/{dated}", "jobs")
    assert questions.schedules[0].schedule.cron == "0 1 * * *"
    assert (descriptions.parameters["manifest"], descriptions.parameters["timezone"]) == (
        f"s3://b/clips/{dated}",
        "Pacific/Kiritimati",
    )


@pytest.mark.system
def test_the_watch_starts_the_flow_that_the_settings_name_until_they_name_another(deploy, client):
    created = deploy(WATCH, WATCH_MANIFESTS="s3://b/in/*.parquet", WATCH_STARTS="describe")
    again = deploy(WATCH)
    back = deploy(WATCH, WATCH_STARTS="classify")

    assert "starts: describe" in created
    assert again[1:] == []
    assert back[1:] == ["starts: describe → classify"]
    found = client.read_deployment_by_name(WATCH)
    assert found.parameters == {"manifests": "s3://b/in/*.parquet", "starts": "classify"}


def test_a_dry_run_changes_nothing_and_ends_with_the_command(environment, client):
    manifest = "s3://b/{scheduled_date}.parquet"
    inline = {
        "REELABEL_NIGHTLY_CRON": "0 3 * * *",
        "REELABEL_NOTIFY_WEBHOOK_URL": "http://127.0.0.1:1/secret",
    }
    completed = reelabel(environment | inline, "deploy", "--manifest", manifest, "--dry-run")

    assert client.read_deployments() == []
    assert f"  manifest: {manifest}" in completed.stdout.splitlines()
    line = completed.stdout.splitlines()[-1]
    assert line.startswith("Nothing was changed. To apply this: REELABEL_CONFIG=")
    assert line.endswith(f" reelabel deploy --manifest '{manifest}'")
    assert " REELABEL_NIGHTLY_CRON='0 3 * * *' " in line
    assert f" REELABEL_PREFECT_API_URL={environment['REELABEL_PREFECT_API_URL']} " in line
    assert not any(hidden in line for hidden in ("secret", "AUTH_STRING", "REELABEL_STORE", "REELABEL_MODEL"))


def test_a_dry_run_offers_no_deploy_that_would_change_nothing(environment, deploy):
    deploy(NIGHTLY)
    with_webhook = environment | {"REELABEL_NOTIFY_WEBHOOK_URL": "http://127.0.0.1:1/"}

    unchanged, changed = (reelabel(each, "deploy", "--dry-run").stdout for each in (environment, with_webhook))

    assert unchanged.endswith("Nothing to change.\n")
    assert "automation reelabel: notify of failed runs: new\n" in changed
    assert changed.endswith(" reelabel deploy\n")


UNNAMED = "No model is named; set REELABEL_MODEL_NAME"


def test_a_schedule_without_a_model_is_refused_before_anything_is_deployed(prefect_services, client):
    settings = prefect_services.model_copy(update={"model": ModelSettings()})
    scheduled = with_nightly(settings, NightlySettings(manifest="/data/*.parquet"))

    with pytest.raises(ConfigurationError, match=f"classify/nightly would fail each time: {UNNAMED}"):
        deploy_flows(scheduled, own_worker=True)

    assert client.read_deployments() == []
    named = ModelSettings(name="some/model")
    deploy_flows(scheduled.model_copy(update={"model": named}), own_worker=True)


def test_what_starts_on_demand_needs_no_model_to_be_deployed(prefect_services, client):
    deploy_flows(prefect_services.model_copy(update={"model": ModelSettings()}), own_worker=True)

    assert "on-demand" in {deployment.name for deployment in client.read_deployments()}


def test_for_workers_elsewhere_a_schedule_without_a_model_is_a_warning(environment, client):  # noqa: ARG001
    named = {name: value for name, value in environment.items() if name != "REELABEL_MODEL_NAME"}
    completed = reelabel(named | {"REELABEL_WATCH_MANIFESTS": "/data/*.parquet"}, "deploy")

    assert completed.returncode == 0, completed.stderr
    assert f"watch/manifests will fail each time unless its worker sets a model: {UNNAMED}" in completed.stdout


@pytest.mark.system
def test_an_operators_changes_survive_a_deploy_until_unpaused(deploy, client):
    deploy(NIGHTLY, "--manifest", "s3://b/{scheduled_date}.parquet")
    nightly = client.read_deployment_by_name(NIGHTLY)
    client.pause_deployment(nightly.id)
    edited = CronSchedule(cron="0 5 * * *", timezone="UTC")
    client.update_deployment_schedule(nightly.id, nightly.schedules[0].id, schedule=edited)
    client.create_deployment_schedules(nightly.id, [(CronSchedule(cron="0 12 * * 0", timezone="UTC"), True)])

    kept = deploy(NIGHTLY, "--manifest", "s3://b/x/{scheduled_date}.parquet")
    paused = client.read_deployment_by_name(NIGHTLY)
    named = deploy(NIGHTLY, "--unpause", NIGHTLY_CRON="0 1 * * *")
    unpaused = client.read_deployment_by_name(NIGHTLY)

    assert kept == [
        f"{NIGHTLY}: changed, kept paused",
        "dataset: b-{scheduled_date} → x-{scheduled_date}",
        "manifest: s3://b/{scheduled_date}.parquet → s3://b/x/{scheduled_date}.parquet",
    ]
    assert named[1:] == ["schedule: 0 5 * * * UTC → 0 1 * * * UTC", "paused: yes → no"]
    assert paused.paused
    assert not unpaused.paused
    assert {each.schedule.cron for each in paused.schedules} == {"0 5 * * *", "0 12 * * 0"}
    assert {each.schedule.cron for each in unpaused.schedules} == {"0 1 * * *", "0 12 * * 0"}


@pytest.mark.system
def test_a_schedule_that_was_turned_off_or_removed_in_prefect_stays_so(deploy, client):
    deploy(NIGHTLY, "--manifest", "s3://b/{scheduled_date}.parquet")
    nightly = client.read_deployment_by_name(NIGHTLY)
    client.update_deployment_schedule(nightly.id, nightly.schedules[0].id, active=False)
    off = deploy(NIGHTLY)
    client.delete_deployment_schedule(nightly.id, nightly.schedules[0].id)
    removed = deploy(NIGHTLY)

    assert off == [f"{NIGHTLY}: unchanged", "kept the schedule off, as set in Prefect"]
    assert removed == [f"{NIGHTLY}: unchanged", "kept without the schedule 0 2 * * * UTC, removed in Prefect"]
    assert deploy(NIGHTLY, "--unpause")[1] == "schedule: none → 0 2 * * * UTC"


def test_deploying_twice_leaves_the_same_deployments_with_forms(environment, client):
    for _ in range(2):
        deployed = reelabel(environment | {"REELABEL_RUN_EXECUTOR": "remote"}, "deploy")
        assert deployed.returncode == 0, deployed.stderr
        assert "infer/gpu: " in deployed.stdout

    found = {f"{each.entrypoint.rpartition('.')[2]}/{each.name}": each for each in client.read_deployments()}
    assert found.keys() == {
        *("classify/on-demand", "classify/nightly", "describe/on-demand", "describe/nightly", "backfill/by-ids"),
        *("evaluate/labelled", "survey/manifest", "watch/manifests", "maintain/daily", "extract/cpu", "infer/gpu"),
    }
    assert found["classify/nightly"].paused
    assert str(found["classify/nightly"].schedules[0].schedule.cron) == "0 2 * * *"
    assert found["classify/on-demand"].entrypoint == "flows.runs.classify"
    assert found["survey/manifest"].parameter_openapi_schema["properties"]["sample"]["default"] == 2000
    for name in ("classify/on-demand", "describe/on-demand"):
        fields = found[name].parameter_openapi_schema["properties"]
        assert "Parquet file of jobs" in fields["manifest"]["description"]
    assert (found["extract/cpu"].work_pool_name, found["infer/gpu"].work_pool_name) == ("cpu", "gpu")
    plans = found["infer/gpu"].parameter_openapi_schema["properties"]["plan"]
    assert "if empty, every open plan" in plans["description"]
    for name in ("classify/on-demand", "backfill/by-ids"):
        groups = found[name].parameter_openapi_schema["definitions"]
        overridden = {"model", "video_pruning_rate", "max_tokens", "sampling", "prompts", "chunks"}
        assert groups["QuestionOptions"]["properties"].keys() == overridden
        sampling, prompts = (groups[kind]["properties"] for kind in ("SamplingOptions", "PromptOptions"))
        assert any(kind.get("maximum") == 2048 for kind in sampling["num_frames"]["anyOf"])
        assert "Orders in which a question's choices are shown" in prompts["permutations"]["description"]
        assert {"keyframes", "qwen2_vl"} <= set(sampling["sampler"]["anyOf"][0]["enum"])
        assert "such as 0.95" in sampling["drop_similar"]["description"]
    properties = found["backfill/by-ids"].parameter_openapi_schema["definitions"]["Selection"]["properties"]
    assert all(schema["description"] for schema in properties.values())
    assert {"failed", "code", "missing", "label", "margin_below", "run", "task", "where", "limit"} <= properties.keys()
    assert properties["margin_below"]["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    assert properties["since"]["anyOf"][0]["format"] == "date-time"
    ways = found["evaluate/labelled"].parameter_openapi_schema["properties"]["samplers"]
    assert ways["default"] == ["keyframes"]
    assert "such as keyframes, uniform:32" in ways["description"]


def test_every_deployment_of_one_machine_is_served(environment, client):
    for pool in {pool.name for pool in client.read_work_pools()} & {"cpu", "gpu"}:
        client.delete_work_pool(pool)
    assert reelabel(environment, "deploy").returncode == 0

    until(lambda: all(each.status == DeploymentStatus.READY for each in client.read_deployments()))
    until(lambda: all(pool.status == WorkPoolStatus.READY for pool in client.read_work_pools()))


def test_every_command_has_help_with_an_example():
    for command in (
        "demo",
        "up",
        "down",
        "status",
        "deploy",
        "catch-up",
        "classify",
        "backfill",
        "evaluate",
        "database roles",
        "database upgrade",
        "database backup",
        "database restore",
        "results",
        "calibrate",
        "audit",
        "frames",
        "prompt",
    ):
        shown = reelabel(os.environ, *command.split(), "--help")
        assert shown.returncode == 0, command
        assert "Example: reelabel" in shown.stdout


@pytest.mark.system
@pytest.mark.usefixtures("prefect_api")
def test_a_deployed_backfill_runs_on_the_worker(environment, tmp_path):
    make_demo(tmp_path, seed=77, clips=2).write_parquet(tmp_path / "manifest.parquet")
    first = reelabel(environment, "classify", str(tmp_path / "manifest.parquet"), "--dataset", "deployed")
    assert "Reconciled: 6 jobs = 6 labels + 0 failures." in first.stdout, first.stderr
    assert reelabel(environment, "deploy").returncode == 0
    of_it = ["--manifest", str(tmp_path / "manifest.parquet"), "--dataset", "deployed", "--submit", "--wait"]

    by_command = reelabel_process(
        environment, "backfill", "--ids", "clip-0001-colour", "--force", "--id-file", str(tmp_path / "id"), *of_it
    )
    failed = reelabel_process(environment, "backfill", "--ids", "nobody", *of_it)

    assert "1 (1 label, 0 failures)" in by_command.stdout, by_command.stderr
    assert (tmp_path / "id").read_text().strip() in by_command.stdout
    assert failed.returncode == 1
    assert "run_failed: The run failed:" in failed.stderr
    assert "1 job id is not in the manifest: nobody" in " ".join(failed.stderr.split())
