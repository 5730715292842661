"""SIGTERM, as a pod gets that is rolled: leases are handed back at once, whatever the process is in the middle of."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import polars as pl
import pytest
from prefect.client.orchestration import get_client
from sqlalchemy import func, select

from infra.database.connect import connect
from infra.embedded import export
from tasks.database.tables import PLAN, SHARD
from tasks.model.identity import TINY_MODEL
from tests.clips import make_clip
from tests.reelabel.sources.web_server import serving
from tests.stub_server import serve_stub
from tests.vllm_server import KEY, gate

__all__ = ["make_clip"]

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("prefect"), pytest.mark.usefixtures("prefect_api")]

VIDEOS = 100
JOBS = 3 * VIDEOS
LEASE_S = 600  # no lease expires here
START_S = 180  # several processes that import Prefect at once, beside other tests
END_S = 30  # on a busy machine; stalled downloads would keep a process for minutes
STALL_S = 3600
PREFECT = (sys.executable, "-P", "-m", "prefect")


@pytest.fixture
def asked():
    """Whether the model server has been asked about a video."""
    return threading.Event()


@pytest.fixture
def environment(own_services, asked):
    """A model server that never answers."""
    ended = threading.Event()

    def answer(_path, body):
        if "Is it number" not in str(body):  # the check of the server at the start
            return None
        asked.set()
        ended.wait()
        return 503, "Stopped."

    with serve_stub() as stub, gate(stub, answer) as url:
        settings = {
            "SHARD_TARGET_JOBS": 50,
            "SHARD_LEASE_S": LEASE_S,
            "RUN_EXECUTOR": "remote",
            "RUN_EXTRACT_FLOWS": 0,
            "RUN_INFER_FLOWS": 0,
            "MODEL_BACKEND": "openai",
            "MODEL_NAME": TINY_MODEL,
            "SERVER_URL": url,
            "SERVER_API_KEY": KEY,
            "WEB_ALLOW_PRIVATE": "true",
        }
        named = {f"REELABEL_{name}": str(value) for name, value in settings.items()}
        yield os.environ | export(own_services) | named | {"COLUMNS": "160"}
        ended.set()


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
def stalled(videos):
    """Return a function that tells whether two downloads stall."""
    for page in videos.pages.values():
        page.pause_s = STALL_S
    return lambda: sum(bool(page.requests) for page in videos.pages.values()) > 1


@pytest.fixture
def manifest(tmp_path, videos):
    rows = {
        "job_id": [f"j{number}" for number in range(JOBS)],
        "video_uri": [f"{videos.url}/{number // 3}.mp4" for number in range(JOBS)],
        "prompt": [f"Is it number {number}?" for number in range(JOBS)],
        "choices": [["yes", "no"]] * JOBS,
    }
    pl.DataFrame(rows).write_parquet(tmp_path / "m.parquet")
    return str(tmp_path / "m.parquet")


@pytest.fixture
def db(own_services):
    engine = connect(own_services.database)
    yield engine
    engine.dispose()


def count_leases(db, dataset, work):
    leased = (PLAN.c.dataset == dataset, SHARD.c.lease_until.is_not(None), SHARD.c.claimed_for == work)
    with db.connect() as connection:
        query = select(func.count()).join(PLAN, PLAN.c.plan_id == SHARD.c.plan_id).where(*leased)
        return connection.execute(query).scalar_one()


def flow_run_of(dataset, db):
    """Return the id of the flow run that a run has started for its plan; None before that."""
    with db.connect() as connection:
        plan = connection.execute(select(PLAN.c.plan_id).where(PLAN.c.dataset == dataset)).scalar()
    with get_client(sync_client=True) as client:
        found = [each.id for each in client.read_flow_runs() if each.parameters.get("plan") == str(plan)]
    return found[0] if found else None


def until(condition, process):
    deadline_s = time.monotonic() + START_S
    while not (found := condition()):
        assert process.poll() is None, process.log.read_text()
        assert time.monotonic() < deadline_s, process.log.read_text()
        time.sleep(0.1)
    return found


def terminate(process):
    process.terminate()
    return process.wait(timeout=END_S)


def test_an_extract_worker_whose_downloads_stall_hands_back_its_shards(start, manifest, db, stalled):
    start("classify", manifest, "--dataset", "extracting")
    worker = start("worker", "extract")
    until(stalled, worker)
    assert count_leases(db, "extracting", "extract")

    assert terminate(worker) == 128 + signal.SIGTERM

    assert not count_leases(db, "extracting", "extract")


def test_an_infer_worker_whose_server_does_not_answer_hands_back_its_shards(start, manifest, db, asked):
    start("classify", manifest, "--dataset", "inferring")
    start("worker", "extract")
    worker = start("worker", "infer")
    until(asked.is_set, worker)
    assert count_leases(db, "inferring", "infer")

    assert terminate(worker) == 128 + signal.SIGTERM

    assert not count_leases(db, "inferring", "infer")


def test_a_run_on_one_machine_hands_back_its_shards(start, manifest, db, asked):
    run = start("classify", manifest, "--dataset", "alone", REELABEL_RUN_EXECUTOR="local")
    until(asked.is_set, run)
    assert count_leases(db, "alone", "both")

    assert terminate(run) == 128 + signal.SIGTERM

    assert not count_leases(db, "alone", "both")


def test_a_pod_hands_back_its_shards_and_its_flow_run(start, manifest, db, stalled):
    assert start("deploy").wait(START_S) == 0
    run = start("classify", manifest, "--dataset", "pod", REELABEL_RUN_EXTRACT_FLOWS="1")
    flow_run_id = until(lambda: flow_run_of("pod", db), run)
    in_pods = {"PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": "reschedule"}
    pod = start(*PREFECT, "flow-run", "execute", str(flow_run_id), module="infra.stop_in_order", **in_pods)
    until(stalled, pod)
    assert count_leases(db, "pod", "extract")

    terminate(pod)

    assert not count_leases(db, "pod", "extract")
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(flow_run_id).state.name == "AwaitingRetry"


def test_a_prefect_worker_in_a_container_has_its_flows_hand_back_their_shards(start, manifest, db, stalled):
    assert start("deploy").wait(START_S) == 0
    command = (*PREFECT, "worker", "start", "--pool", "cpu", "--type", "process")
    worker = start(*command, module="infra.stop_in_order")
    start("classify", manifest, "--dataset", "served", REELABEL_RUN_EXTRACT_FLOWS="1")
    until(lambda: stalled() and count_leases(db, "served", "extract"), worker)

    terminate(worker)

    assert not count_leases(db, "served", "extract")
