"""A machine that disappears in the middle of a run; takes minutes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import polars as pl
import pytest
from sqlalchemy import func, select

from infra.database.connect import connect
from infra.embedded import ServiceName, export, running, start, status
from infra.embedded.prefect import basic_auth_headers
from infra.settings import Settings
from tasks.database.schema import prepare_database
from tasks.database.tables import RESULT, RUN
from tasks.demo.clips import make_demo
from tests.manifests import upload
from tests.wait import until

RESUMED_WITHIN_S = 180
TIMES = 10  # each question is asked, so that the run is far from done when its first answers are seen
JOBS = TIMES * 144


@pytest.fixture
def unstarted(tmp_path):
    return Settings(home=tmp_path / "home", shard={"target_jobs": 50})


@pytest.fixture
def settings(unstarted):
    with running(unstarted, wanted=frozenset(ServiceName)) as started:
        yield started


@pytest.fixture
def demo_manifest(settings, tmp_path):
    folder = tmp_path / "demo"
    folder.mkdir()
    root = f"{settings.store.uri}/demo"
    make_demo(folder, seed=5, clips=48, uri_prefix=root)
    demo = pl.read_parquet(folder / "manifest.parquet")
    again = [demo.with_columns(pl.format("{}-{}", "job_id", pl.lit(number))) for number in range(TIMES)]
    pl.concat(again).write_parquet(folder / "manifest.parquet")
    upload(folder, settings.store, root)
    return f"{root}/manifest.parquet"


def descendants(pid):
    """Find all processes below one; who lost its parent meanwhile is found, too, by its group."""
    parent_of = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent_of[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    below = {pid}
    while True:
        more = {child for child, parent in parent_of.items() if parent in below} - below
        if not more:
            return below
        below |= more


@pytest.mark.timeout(900)
@pytest.mark.xdist_group("long-waits")
def test_a_run_whose_node_is_lost_frees_its_slot_and_continues_by_itself(unstarted, settings, demo_manifest):
    prepare_database(settings.database)
    environment = os.environ | export(settings)
    subprocess.run([sys.executable, "-m", "flows.cli.main", "deploy"], env=environment, check=True)
    login = basic_auth_headers(settings.prefect.auth_string)
    api = httpx.Client(base_url=f"{settings.prefect.api_url}/", headers=login, timeout=30)
    nightly = api.get("deployments/name/classify/nightly").json()
    started = api.post(f"deployments/{nightly['id']}/create_flow_run", json={"parameters": {"manifest": demo_manifest}})
    run_id = started.raise_for_status().json()["id"]
    engine = connect(settings.database)

    def labels():
        with engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(RESULT)).scalar_one()

    def flow_run():
        return api.get(f"flow_runs/{run_id}").raise_for_status().json()

    until(labels, 240)
    [worker] = [service.pid for service in status(settings.home) if service.name == ServiceName.WORKER]
    for pid in descendants(worker):
        os.kill(pid, signal.SIGKILL)
    killed_at = time.monotonic()
    before = labels()
    assert before < JOBS
    start(unstarted, wanted=frozenset(ServiceName))

    until(lambda: flow_run()["run_count"] == 2 and flow_run()["state_type"] == "RUNNING", RESUMED_WITHIN_S)
    resumed_after_s = time.monotonic() - killed_at

    ended = until(lambda: flow_run() if flow_run()["state_type"] not in {"RUNNING", "SCHEDULED"} else None, 240)
    assert ended["state"]["message"] == f"Reconciled: {JOBS:,} jobs = {JOBS:,} labels + 0 failures."
    assert resumed_after_s < RESUMED_WITHIN_S
    with engine.connect() as connection:
        [row] = connection.execute(select(RUN)).mappings()
    assert row["state"] == "done"
    assert row["jobs_labelled"] <= JOBS - before + 50  # what was answered is not asked again
    engine.dispose()
