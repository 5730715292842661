"""SIGTERM, as a pod gets that is rolled: leases are handed back at once, whatever the process is in the middle of."""

import signal
import threading

import pytest
from prefect.client.orchestration import get_client
from sqlalchemy import select

from tasks.database.tables import RUN
from tests.flows.run.worker_processes import (
    count_leases,
    db,
    environment,
    make_clip,
    numbered_manifest,
    start,
    until,
    videos,
)

__all__ = ["db", "environment", "make_clip", "numbered_manifest", "start", "videos"]

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("prefect"), pytest.mark.usefixtures("prefect_api")]

END_S = 30  # on a busy machine; stalled downloads would keep a process for minutes
STALL_S = 3600


@pytest.fixture(autouse=True)
def leases_do_not_expire(monkeypatch):
    monkeypatch.setenv("REELABEL_SHARD_LEASE_S", "600")


@pytest.fixture
def request_received():
    """Whether the model server has been asked about a video."""
    return threading.Event()


@pytest.fixture
def answer(request_received):
    """The model server never answers."""
    ended = threading.Event()

    def answer(_path, body):
        if "Is it number" not in str(body):  # the check of the server at the start
            return None
        request_received.set()
        ended.wait()
        return 503, "Stopped."

    yield answer
    ended.set()


@pytest.fixture
def stalled(videos):
    """Return a function that returns whether two downloads stall."""
    for page in videos.pages.values():
        page.pause_s = STALL_S
    return lambda: sum(bool(page.requests) for page in videos.pages.values()) > 1


def terminate(process):
    process.terminate()
    return process.wait(timeout=END_S)


def test_an_extract_worker_whose_downloads_stall_hands_back_its_shards(start, numbered_manifest, db, stalled):
    start("classify", numbered_manifest, "--dataset", "extracting")
    worker = start("worker", "extract")
    until(stalled, worker)
    assert count_leases(db, "extracting", "extract")

    assert terminate(worker) == 128 + signal.SIGTERM

    assert not count_leases(db, "extracting", "extract")


def test_an_infer_worker_whose_server_does_not_answer_hands_back_its_shards(
    start, numbered_manifest, db, request_received
):
    start("classify", numbered_manifest, "--dataset", "inferring")
    start("worker", "extract")
    worker = start("worker", "infer")
    until(request_received.is_set, worker)
    assert count_leases(db, "inferring", "infer")

    assert terminate(worker) == 128 + signal.SIGTERM

    assert not count_leases(db, "inferring", "infer")


def test_a_run_on_one_machine_hands_back_its_shards(start, numbered_manifest, db, request_received):
    run = start("classify", numbered_manifest, "--dataset", "alone", REELABEL_RUN_EXECUTOR="local")
    until(request_received.is_set, run)
    assert count_leases(db, "alone", "both")

    assert terminate(run) == 128 + signal.SIGTERM

    assert not count_leases(db, "alone", "both")
    with db.connect() as connection:
        run_id = connection.execute(select(RUN.c.run_id).where(RUN.c.dataset == "alone", RUN.c.state == "cancelled"))
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(run_id.scalar_one()).state
    assert (state.name, state.message) == ("Cancelled", "Ended by SIGTERM.")
