"""Thousands of jobs on one video: rows are written as answers come, and Ctrl-C ends the run, which can be continued."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from sqlalchemy import func, select

from infra.database.connect import connected
from tasks.database.tables import RESULT, SHARD
from tests.clips import make_clip
from tests.command_line import reelabel_process
from tests.flows.runs import environment_of, served_by
from tests.manifests import write_numbered_jobs
from tests.stub_server import serve_stub
from tests.wait import until

__all__ = ["make_clip"]

# The group of those who use Prefect alone: what ends here must not wait for others.
pytestmark = [pytest.mark.system, pytest.mark.xdist_group("prefect")]
JOBS = 3_000


@pytest.fixture
def environment(own_services):
    with serve_stub() as url:
        yield served_by(url, environment_of(own_services))


@pytest.fixture
def db(own_services):
    with connected(own_services.database) as engine:
        yield engine


@pytest.fixture
def one_video_manifest(tmp_path, make_clip):
    return write_numbered_jobs(tmp_path / "m.parquet", [str(make_clip())] * JOBS)


def count(db, query):
    with db.connect() as connection:
        return connection.execute(query).scalar_one()


def rows_of(db, dataset):
    return count(db, select(func.count()).select_from(RESULT).where(RESULT.c.dataset == dataset))


def begin_and_wait_for_rows(environment, manifest, dataset, db):
    # Where the tests themselves run in the background, a shell has them ignore Ctrl-C.
    hearing = "import signal, runpy; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = hearing + "runpy.run_module('flows.cli.main', run_name='__main__')"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", command, "classify", manifest, "--dataset", dataset],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: rows_of(db, dataset) or process.poll() is not None, 120)
    return process


def test_ctrl_c_ends_a_run_on_one_video_and_the_next_run_goes_on(environment, one_video_manifest, db):
    process = begin_and_wait_for_rows(environment, one_video_manifest, "one-video", db)
    began_s = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    ended_s = time.monotonic() - began_s

    done = rows_of(db, "one-video")
    assert process.returncode == 130, stderr
    assert ended_s < 10
    assert 0 < done < JOBS
    found = re.fullmatch(
        r"Stopped with ([\d,]+) of 3,000 jobs done; run the same command again to continue\.", stderr.strip()
    )
    assert found, stderr
    assert count(db, select(func.count()).select_from(SHARD).where(SHARD.c.lease_until.is_not(None))) == 0
    assert count(db, select(func.max(SHARD.c.jobs))) <= 200
    again = reelabel_process(environment, "classify", one_video_manifest, "--dataset", "one-video")
    assert again.returncode == 0, again.stderr
    assert rows_of(db, "one-video") == JOBS


def test_a_second_ctrl_c_ends_a_run_at_once(environment, one_video_manifest, db):
    process = begin_and_wait_for_rows(environment, one_video_manifest, "one-video-twice", db)
    began_s = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 130
    assert time.monotonic() - began_s < 6
    until(lambda: not is_running(process.pid))  # those that were killed need a moment


def is_running(session):
    found = subprocess.run(["ps", "-o", "state=", "-s", str(session)], capture_output=True, text=True, check=False)
    return not set(found.stdout.split()) <= {"Z"}
