"""`reelabel status` shows how scheduled runs went and what to do."""

import os
import re
import secrets
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.states import Cancelled, Completed, Failed

from flows.cli.operations.schedule import with_nightly
from flows.cli.status.prefect import repeat_command
from flows.run.names import TAG, WATCH
from flows.schedule.catch_up import ScheduledRun, start_scheduled_run
from flows.schedule.deploy import deploy_flows
from infra.database.connect import connect
from infra.embedded import export
from infra.settings import DatabaseSettings, NightlySettings
from tasks.results.runs import close_run, open_run
from tests.command_line import reelabel
from tests.results.rows import FACTS, SPEC

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture
def settings(prefect_services, database_url):
    return prefect_services.model_copy(update={"database": DatabaseSettings(url=database_url)})


@pytest.fixture
def page(settings):
    return lambda: reelabel(os.environ | export(settings) | {"COLUMNS": "160"}, "status").stdout


@pytest.fixture
def engine(settings):
    engine = connect(settings.database)
    yield engine
    engine.dispose()


@pytest.fixture
def nightly_manifest(settings):
    """A nightly manifest that no other test knows; the schedule is taken away at the end."""
    manifest = f"s3://nobody/{secrets.token_hex(6)}/" + "{scheduled_date}.parquet"
    nightly = NightlySettings(manifest=manifest, cron="0 2 * * *", timezone="Europe/Berlin")
    deploy_flows(with_nightly(settings, nightly))
    yield manifest
    deploy_flows(settings)


def test_a_watch_is_shown_with_what_it_starts(client, page, settings):
    deploy_flows(settings)
    watch = client.read_deployment_by_name(WATCH)
    parameters = watch.parameters | {"manifests": "s3://nobody/*.parquet", "starts": "describe"}
    client.update_deployment(watch.id, DeploymentUpdate(parameters=parameters, paused=False))
    shown = page()
    client.update_deployment(watch.id, DeploymentUpdate(parameters=watch.parameters, paused=True))

    assert "Watch: on, for s3://nobody/*.parquet; starts describe/on-demand." in shown
    assert "Watch: paused." in page()


@pytest.mark.usefixtures("idle_worker")
def test_the_next_and_last_scheduled_run_are_shown_with_the_command_that_repairs_it(client, nightly_manifest, page):
    before = page()
    assert f"Next scheduled run, {datetime.now(UTC) + timedelta(days=1):%Y-%m}" in before
    assert f"CET: {nightly_manifest}" in before or f"CEST: {nightly_manifest}" in before
    assert "Watch: paused." in before

    run = ScheduledRun(
        at=datetime.now(UTC).replace(microsecond=0), manifest=nightly_manifest, state="missed", attempts=7
    )
    failed = start_scheduled_run(client, run)
    client.set_flow_run_state(failed.id, Failed(message="The store was away."), force=True)

    after = page().splitlines()
    [last] = [number for number, line in enumerate(after) if line.endswith("Failed: The store was away.")]
    assert after[last].startswith("Last scheduled run, ")
    day = run.at.astimezone(ZoneInfo("Europe/Berlin")).date()
    assert after[last + 1] == f"    reelabel catch-up --since {day} --until {day}"

    again = start_scheduled_run(
        client, ScheduledRun(at=run.at, manifest=nightly_manifest, state="missed", attempts=run.attempts + 1)
    )
    client.set_flow_run_state(again.id, Completed(message="Reconciled: 3 jobs."), force=True)

    repaired = page()
    assert "Completed: Reconciled: 3 jobs." in repaired
    assert "catch-up" not in repaired


@pytest.mark.usefixtures("idle_worker")
def test_a_scheduled_run_that_failed_after_it_began_is_caught_up(client, nightly_manifest, page, engine):
    at = datetime.now(UTC).replace(microsecond=0)
    flow_run = start_scheduled_run(client, ScheduledRun(at=at, manifest=nightly_manifest, state="missed", attempts=9))
    open_run(engine, run_id=flow_run.id, spec=SPEC, facts=FACTS | {"manifest_uri": nightly_manifest})
    close_run(engine, flow_run.id, state="failed", message="Postgres was away.")
    client.set_flow_run_state(flow_run.id, Cancelled(), force=True)

    [_, repair] = re.findall(r"Postgres was away\.\n|    reelabel catch-up --since .*", page())

    assert repair.startswith("    reelabel catch-up --since 20")


def test_a_killed_run_is_lost_at_once_and_its_command_is_printed(page, engine):
    code = "from infra.processes import own_process; print(own_process(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as own:
        process = own.stdout.readline().strip()
        open_run(engine, run_id=uuid4(), spec=SPEC, facts=FACTS | {"process": process, "dataset": "two words"})
        own.kill()

    shown = page()

    assert "lost: The run was killed or lost its machine; start it again to continue." in shown
    assert "    reelabel classify m.parquet --dataset 'two words'" in shown
    _, runs = shown.split("per s", 1)
    assert "lost" in runs
    assert "running  " not in runs


def test_a_failed_backfill_is_repeated_with_its_own_options(client, page, engine):
    from flows.runs import backfill  # noqa: PLC0415

    parameters = {
        "manifest": "m.parquet",
        "selection": {"failed": True, "code": "no_frames"},
        "dataset": "d",
        "force": True,
    }
    parameters |= {"overrides": {"sampling": {"num_frames": 32}}}
    flow_run = client.create_flow_run(backfill, parameters=parameters, tags=[TAG], state=Failed(message="No."))
    open_run(engine, run_id=flow_run.id, spec=SPEC, facts=FACTS | {"kind": "backfill"})
    close_run(engine, flow_run.id, state="failed", message="Postgres was away.")

    shown = page()

    trouble = f"backfill d ({str(flow_run.id)[:8]}) failed: Postgres was away."
    assert trouble in shown
    repeated = shown.partition(trouble)[2].splitlines()[1]  # other tests leave failed backfills, too
    assert repeated.startswith("    reelabel backfill ")
    for options in (
        "--failed",
        "--code no_frames",
        "--manifest m.parquet",
        "--dataset d",
        "--num-frames 32",
        "--force",
    ):
        assert options in repeated

    later = uuid4()
    open_run(engine, run_id=later, spec=SPEC, facts=FACTS | {"kind": "backfill"})
    close_run(engine, later, state="done", message="Reconciled.")
    assert trouble not in page()


def test_a_run_that_prefect_does_not_know_is_repeated_with_invalid_rows_left_out_again(page, engine):
    facts = FACTS | {"manifest_uri": f"/no/{secrets.token_hex(6)}.parquet", "dataset": "unknown", "jobs_rejected": 2}
    run_id = uuid4()
    open_run(engine, run_id=run_id, spec=SPEC, facts=facts)
    close_run(engine, run_id, state="failed", message="Postgres was away.")

    lines = page().splitlines()

    [trouble] = [number for number, line in enumerate(lines) if f"({str(run_id)[:8]}) failed" in line]
    assert lines[trouble + 1] == f"    reelabel classify {facts['manifest_uri']} --dataset unknown --keep-going"


REPEATED = [
    (
        "classify",
        {"manifest": "m.parquet", "once_per_duplicate": 0.95, "may_be_empty": True, "timezone": "UTC"},
        "reelabel classify m.parquet --once-per-duplicate 0.95",
    ),
    (
        "backfill",
        {"manifest": "m.parquet", "ids": ["a", "b"], "selection": {"failed": True, "since": None}, "ids_file": None},
        "reelabel backfill --manifest m.parquet --ids a,b --failed",
    ),
    (
        "classify",
        {"manifest": "m.parquet", "overrides": {"model": "a b", "sampling": {"num_frames": 4}}, "force": True},
        "reelabel classify m.parquet --model 'a b' --num-frames 4 --force",
    ),
    (
        "classify",
        {"manifest": "m.parquet", "overrides": {"prompts": {"examples": ""}, "sampling": {"frame_recovery": False}}},
        "reelabel classify m.parquet --no-frame-recovery --examples ''",
    ),
    (
        "describe",
        {"manifest": "m.parquet", "options": {"tags": "t.txt"}, "keep_going": True},
        "reelabel describe m.parquet --tags t.txt --keep-going",
    ),
    (
        "backfill",
        {"manifest": "m.parquet", "ids_file": "ids of it.txt"},
        "reelabel backfill --manifest m.parquet --ids-file 'ids of it.txt'",
    ),
    (
        "backfill",
        {"manifest": "m.parquet", "ids_file": "s3://b/ids.txt", "force": True},
        "Save s3://b/ids.txt as ids.txt, then: reelabel backfill --manifest m.parquet --ids-file ids.txt --force",
    ),
]


@pytest.mark.parametrize(("kind", "parameters", "repair"), REPEATED)
def test_the_command_that_repeats_a_run_is_understood(kind, parameters, repair):
    assert repeat_command(kind, parameters) == repair
    repeated = repair.rpartition("then: ")[2]
    refused = reelabel(os.environ, *shlex.split(repeated)[1:], "--no-such-option")
    assert "No such option: --no-such-option" in refused.stderr  # the first one that is not understood


def test_stopped_services_are_reported_as_not_shown(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REELABEL_")}

    shown = reelabel(environment | {"REELABEL_HOME": str(tmp_path / "none"), "COLUMNS": "160"}, "status").stdout

    assert not (tmp_path / "none").exists()
    assert "No runs are shown, because Postgres is stopped." in shown
    assert "No schedules are shown, because Prefect is stopped." in shown
    assert "To start stopped services: reelabel up" in shown
