"""SIGTERM, as a pod gets that is rolled: leases are handed back at once, whatever the process is in the middle of."""

import signal
import sys
import threading

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort
from sqlalchemy import select

from tasks.database.tables import PLAN, RUN
from tests.flows.run.worker_processes import (
    START_S,
    count_leases,
    db,
    environment,
    make_clip,
    manifest,
    start,
    until,
    videos,
)

__all__ = ["db", "environment", "make_clip", "manifest", "start", "videos"]

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("prefect"), pytest.mark.usefixtures("prefect_api")]

END_S = 30  # on a busy machine; stalled downloads would keep a process for minutes
STALL_S = 3600
PREFECT = (sys.executable, "-P", "-m", "prefect")


@pytest.fixture(autouse=True)
def leases_do_not_expire(monkeypatch):
    monkeypatch.setenv("REELABEL_SHARD_LEASE_S", "600")


@pytest.fixture
def asked():
    """Whether the model server has been asked about a video."""
    return threading.Event()


@pytest.fixture
def answer(asked):
    """The model server never answers."""
    ended = threading.Event()

    def answer(_path, body):
        if "Is it number" not in str(body):  # the check of the server at the start
            return None
        asked.set()
        ended.wait()
        return 503, "Stopped."

    yield answer
    ended.set()


@pytest.fixture
def stalled(videos):
    """Return a function that tells whether two downloads stall."""
    for page in videos.pages.values():
        page.pause_s = STALL_S
    return lambda: sum(bool(page.requests) for page in videos.pages.values()) > 1


def flow_run_of(dataset, db):
    """Return the id of the flow run that a run has started for its plan; None before that."""
    with db.connect() as connection:
        plan = connection.execute(select(PLAN.c.plan_id).where(PLAN.c.dataset == dataset)).scalar()
    with get_client(sync_client=True) as client:
        newest = client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC)
    found = [each.id for each in newest if each.parameters.get("plan") == str(plan)]
    return found[0] if found else None


def count_workers(pool):
    """Count the workers that serve a pool, which the first one creates."""
    with get_client(sync_client=True) as client:
        is_there = any(each.name == pool for each in client.read_work_pools())
        return len(client.read_workers_for_work_pool(pool)) if is_there else 0


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
    with db.connect() as connection:
        run_id = connection.execute(select(RUN.c.run_id).where(RUN.c.dataset == "alone", RUN.c.state == "cancelled"))
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(run_id.scalar_one()).state
    assert (state.name, state.message) == ("Cancelled", "Ended by SIGTERM.")


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


def test_a_prefect_worker_that_a_script_has_started_in_the_background_ends(start):
    command = (*PREFECT, "worker", "start", "--pool", "background", "--type", "process")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as shells have it for such processes
    try:
        worker = start(*command, module="infra.stop_in_order")
    finally:
        signal.signal(signal.SIGINT, before)
    until(lambda: count_workers("background"), worker)

    terminate(worker)


def test_a_prefect_worker_in_a_container_has_its_flows_hand_back_their_shards(start, manifest, db, stalled):
    assert start("deploy").wait(START_S) == 0
    command = (*PREFECT, "worker", "start", "--pool", "cpu", "--type", "process")
    worker = start(*command, module="infra.stop_in_order")
    start("classify", manifest, "--dataset", "served", REELABEL_RUN_EXTRACT_FLOWS="1")
    until(lambda: stalled() and count_leases(db, "served", "extract"), worker)

    terminate(worker)

    assert not count_leases(db, "served", "extract")
