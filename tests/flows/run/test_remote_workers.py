"""Workers of a run elsewhere: none of them, several of them, and one that is killed."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import func, select

from infra.processes import free_port
from tasks.database.tables import PLAN, RESULT, RUN, SHARD
from tests.command_line import reelabel_process
from tests.flows.run.worker_processes import (
    JOBS,
    START_S,
    db,
    environment,
    make_clip,
    numbered_manifest,
    start,
    until,
    videos,
)

__all__ = ["db", "environment", "make_clip", "numbered_manifest", "start", "videos"]

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("prefect")]

RECONCILED = f"Reconciled: {JOBS} jobs = {JOBS} labels + 0 failures."
WARNED_WITHIN_S = 30
SCRIPTS = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def small_workers(monkeypatch):
    monkeypatch.setenv("REELABEL_SHARD_LEASE_S", "3")
    monkeypatch.setenv("REELABEL_EXTRACT_PROCESSES", "1")
    monkeypatch.setenv("REELABEL_EXTRACT_LOOKAHEAD_SHARDS", "1")


@pytest.fixture
def request_counts():
    """How often each question has reached the model server."""
    return Counter()


@pytest.fixture
def answer(request_counts):
    counting = threading.Lock()

    def answer(path, body):
        found = re.search(r"Is it number (\d+)\?", str(body))
        if found and path.endswith("/completions"):
            with counting:
                request_counts[int(found[1])] += 1

    return answer


def plan_of(dataset, db, *columns):
    with db.connect() as connection:
        of_plan = select(*columns).join(PLAN, PLAN.c.plan_id == SHARD.c.plan_id).where(PLAN.c.dataset == dataset)
        return connection.execute(of_plan).all()


def test_a_run_without_workers_says_how_to_start_them_and_so_they_start(start, environment, numbered_manifest, db):
    port = free_port()
    run = start("classify", numbered_manifest, "--dataset", "nobody", REELABEL_METRICS_PORT=str(port))
    until(lambda: plan_of("nobody", db, SHARD.c.shard_index), run)
    planned_s = time.monotonic()
    until(lambda: run.log.read_text().count("worker has a shard: start one by") == 2, run)
    waited_s = time.monotonic() - planned_s
    commands = dict(re.findall(r"No (\w+) worker has a shard: start one by `(.+?)`", run.log.read_text()))
    status = reelabel_process(environment, "status").stdout
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        exported = page.read().decode()

    in_a_shell = environment | {"PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    workers = [
        subprocess.Popen(
            f"exec {line}", shell=True, env=in_a_shell, cwd=Path(numbered_manifest).parent, start_new_session=True
        )
        for line in commands.values()
    ]
    try:
        assert run.wait(START_S) == 0, run.log.read_text()
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()

    assert commands == {"extract": "reelabel worker extract", "infer": "reelabel worker infer"}
    assert waited_s < WARNED_WITHIN_S
    assert f"reelabel_run_jobs_left {JOBS}.0" in exported
    assert all(f"No {stage} worker has a shard: start one by `{line}`" in status for stage, line in commands.items())
    assert RECONCILED in run.log.read_text()


def test_of_two_extract_workers_one_is_killed_and_the_other_takes_its_shards(
    start, environment, numbered_manifest, db, videos, request_counts
):
    for page in videos.pages.values():
        page.pause_s, page.step_bytes = 0.3, 1 << 20
    run = start("classify", numbered_manifest, "--dataset", "killed")
    start("worker", "infer")
    killed, other = start("worker", "extract"), start("worker", "extract")

    def held_by(worker):
        holder = SHARD.c.holder.contains(f" {worker.pid} (") & SHARD.c.lease_until.is_not(None)
        found = plan_of("killed", db, SHARD.c.shard_index, holder.label("is_held"))
        return {row.shard_index for row in found if row.is_held}

    until(lambda: held_by(killed) and held_by(other), run)
    os.kill(killed.pid, signal.SIGKILL)
    left = held_by(killed)
    assert run.wait(START_S) == 0, run.log.read_text()

    assert left
    assert RECONCILED in run.log.read_text()
    shards = plan_of("killed", db, SHARD.c.shard_index, SHARD.c.state, SHARD.c.attempts)
    assert {shard.shard_index for shard in shards if shard.attempts} == left
    assert {shard.state for shard in shards} == {"done"}
    assert request_counts == dict.fromkeys(range(JOBS), 1)
    with db.connect() as connection:
        rows = select(func.count(), func.count(RESULT.c.job_id.distinct())).where(RESULT.c.dataset == "killed")
        assert connection.execute(rows).one() == (JOBS, JOBS)
        answered = select(RUN.c.jobs_labelled, RUN.c.jobs_failed).where(RUN.c.dataset == "killed")
        assert connection.execute(answered).one() == (JOBS, 0)
    audit = reelabel_process(environment, "audit", "last")
    assert (audit.returncode, RECONCILED in audit.stdout) == (0, True)
