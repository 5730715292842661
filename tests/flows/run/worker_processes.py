"""Fixtures for runs whose shards are extracted and inferred by processes of their own."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from sqlalchemy import func, select

from infra.database.connect import connected
from tasks.database.tables import PLAN, SHARD
from tests.clips import make_clip
from tests.flows.runs import environment_of, served_by
from tests.manifests import write_numbered_jobs
from tests.reelabel.sources.web_server import serving
from tests.stub_server import serve_stub
from tests.vllm_server import gate

__all__ = ["count_leases", "db", "environment", "make_clip", "numbered_manifest", "start", "until", "videos"]

VIDEOS = 100
JOBS = 3 * VIDEOS
START_S = 180  # several processes that import Prefect at once, beside other tests


@pytest.fixture
def environment(own_services, answer):
    """Settings of all processes, with a model server that `answer` may answer for: see `gate`."""
    with serve_stub() as stub, gate(stub, answer) as url:
        yield served_by(
            url,
            environment_of(own_services),
            SHARD_TARGET_JOBS=50,
            RUN_EXECUTOR="remote",
            RUN_EXTRACT_FLOWS=0,
            RUN_INFER_FLOWS=0,
            WEB_ALLOW_PRIVATE="true",
        )


@pytest.fixture
def start(environment, tmp_path):
    started = []

    def start(*arguments, module="flows.cli.main", **changed):
        command = [sys.executable, "-P", "-m", module, *arguments]
        with (tmp_path / f"{len(started)}.log").open("w") as log:
            options = {"stdout": log, "stderr": log, "cwd": tmp_path, "start_new_session": True}
            started.append(subprocess.Popen(command, env=environment | changed, **options))
        started[-1].log = tmp_path / f"{len(started) - 1}.log"
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def videos(make_clip):
    body = make_clip().read_bytes()
    with serving() as server:
        for number in range(VIDEOS):
            server.add(f"/{number}.mp4", body=body)
        yield server


@pytest.fixture
def numbered_manifest(tmp_path, videos):
    uris = [f"{videos.url}/{number // 3}.mp4" for number in range(JOBS)]
    return write_numbered_jobs(tmp_path / "m.parquet", uris)


@pytest.fixture
def db(own_services):
    with connected(own_services.database) as engine:
        yield engine


def count_leases(db, dataset, work):
    leased = (PLAN.c.dataset == dataset, SHARD.c.lease_until.is_not(None), SHARD.c.claimed_for == work)
    with db.connect() as connection:
        query = select(func.count()).join(PLAN, PLAN.c.plan_id == SHARD.c.plan_id).where(*leased)
        return connection.execute(query).scalar_one()


def until(condition, process):
    deadline_s = time.monotonic() + START_S
    while not (found := condition()):
        assert process.poll() is None, process.log.read_text()
        assert time.monotonic() < deadline_s, process.log.read_text()
        time.sleep(0.1)
    return found
