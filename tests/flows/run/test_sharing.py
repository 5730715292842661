"""Several processes on one plan: they share the work and take over what one of them leaves."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest
from sqlalchemy import func, select

from infra.database.connect import connected
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import CHUNK, PLAN, RESULT, RUN, SHARD
from tasks.demo.clips import make_demo
from tests.flows.runs import environment_of, served_by
from tests.manifests import upload

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("prefect")]

CLIPS = 100
JOBS = 3 * CLIPS
FILMS = 27
TIMEOUT_S = 600  # six processes that import Prefect and vLLM at once, beside other tests
END_S = 20


def store_demo(folder, services, *, clips):
    root = f"{services.store.uri}/{folder.name}"
    make_demo(folder, seed=5, clips=clips, uri_prefix=root).write_parquet(folder / "manifest.parquet")
    upload(folder, services.store, root)
    return f"{root}/manifest.parquet"


@pytest.fixture(scope="module")
def demo_manifest(tmp_path_factory, prefect_services):
    """Enough jobs for six shards."""
    return store_demo(tmp_path_factory.mktemp("shared"), prefect_services, clips=CLIPS)


@pytest.fixture(scope="module")
def films(tmp_path_factory, prefect_services):
    """Enough jobs for ten shards, if they are cut into chunks."""
    return store_demo(tmp_path_factory.mktemp("films"), prefect_services, clips=FILMS)


@pytest.fixture(scope="module")
def environment(prefect_services, vllm_server):
    return served_by(
        vllm_server,
        environment_of(prefect_services),
        SHARD_TARGET_JOBS=50,
        SHARD_LEASE_S=3,
        EXTRACT_LOOKAHEAD_SHARDS=1,
        MODEL_MAX_CONCURRENT_SHARDS=1,
    )


@pytest.fixture(scope="module")
def engine(prefect_services):
    with connected(prefect_services.database) as engine:
        yield engine


@pytest.fixture
def start(environment):
    started = []

    def start(*arguments, module="flows.cli.main", cwd=None, **settings):
        named = {f"REELABEL_{name}": str(value) for name, value in settings.items()}
        command = [sys.executable, "-m", module, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        environ = environment | named
        started.append(subprocess.Popen(command, env=environ, cwd=cwd, start_new_session=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_S)
        with contextlib.suppress(ProcessLookupError):  # a worker waits for its flow runs, whatever they wait for
            os.killpg(process.pid, signal.SIGKILL)


def count(engine, dataset, table=RESULT):
    with engine.connect() as connection:
        return connection.execute(select(func.count()).where(table.c.dataset == dataset)).scalar_one()


def not_extracted(engine, dataset):
    of_it = select(SHARD.c.state).join(PLAN, PLAN.c.plan_id == SHARD.c.plan_id).where(PLAN.c.dataset == dataset)
    with engine.connect() as connection:
        return set(connection.execute(of_it).scalars()) == {"planned"}


def plan_files(engine, dataset, store):
    with engine.connect() as connection:
        plans = connection.execute(select(PLAN.c.plan_id).where(PLAN.c.dataset == dataset)).scalars().all()
    assert plans
    return [each.uri for plan in plans for each in ObjectStore(store).list(f"{store.uri}/plans/{plan}")]


def job_counts_by_run(engine, dataset):
    query = select(RUN.c.jobs_labelled + RUN.c.jobs_failed).where(RUN.c.dataset == dataset).order_by(RUN.c.started_at)
    with engine.connect() as connection:
        return connection.execute(query).scalars().all()


def test_two_simultaneous_runs_of_one_manifest_ask_each_job_once(start, engine, demo_manifest):
    both = [start("classify", demo_manifest, "--dataset", "both") for _ in range(2)]
    printed = [process.communicate(timeout=TIMEOUT_S)[0] for process in both]

    assert [process.returncode for process in both] == [0, 0], printed
    assert all(f"Reconciled: {JOBS} jobs = {JOBS} labels + 0 failures." in text for text in printed)
    counts = job_counts_by_run(engine, "both")
    assert sum(counts) == JOBS
    assert min(counts) > 0
    assert count(engine, "both", PLAN) == 1


def chunk_labels(engine, dataset):
    """Return the labels of jobs by id, and those of their chunks, in order."""
    with engine.connect() as connection:
        jobs = connection.execute(select(RESULT.c.job_id, RESULT.c.label).where(RESULT.c.dataset == dataset))
        columns = (CHUNK.c.job_id, CHUNK.c.chunk, CHUNK.c.start_s, CHUNK.c.end_s, CHUNK.c.label)
        chunks = connection.execute(select(*columns).where(CHUNK.c.dataset == dataset).order_by(*columns[:2]))
        return dict(jobs.tuples().all()), chunks.all()


def test_runs_by_chunks_that_are_killed_and_shared_end_as_an_undisturbed_one(start, engine, films, prefect_services):
    def run(dataset):
        return start("classify", films, "--dataset", dataset, "--chunk-s", "1.5")

    def wait_for_rows(dataset, process):
        while not count(engine, dataset) and process.poll() is None:
            time.sleep(0.05)
        return time.monotonic()

    whole = run("by-chunks")
    began_s = wait_for_rows("by-chunks", whole)
    output = whole.communicate(timeout=TIMEOUT_S)[0]
    assert whole.returncode == 0, output
    took_s = time.monotonic() - began_s

    killed = run("by-chunks-killed")
    wait_for_rows("by-chunks-killed", killed)
    delay_s = random.SystemRandom().uniform(0, took_s / 2)
    time.sleep(delay_s)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    before = count(engine, "by-chunks-killed")
    both = [run("by-chunks-killed") for _ in range(2)]
    printed = [process.communicate(timeout=TIMEOUT_S)[0] for process in both]

    assert [process.returncode for process in both] == [0, 0], printed
    moment = f"killed {delay_s:.2f} s after its first rows, with {before} of them"
    assert before > 0, moment
    labels, chunks = chunk_labels(engine, "by-chunks")
    assert len(labels) == 3 * FILMS < len(chunks)
    assert chunk_labels(engine, "by-chunks-killed") == (labels, chunks), moment
    assert sum(job_counts_by_run(engine, "by-chunks-killed")[1:]) == 3 * FILMS - before, moment
    reconciled = f"Reconciled: {len(labels)} jobs = {len(labels)} labels + 0 failures, from {len(chunks)} chunks"
    assert all(reconciled in " ".join(text.split()) for text in printed)
    assert not plan_files(engine, "by-chunks-killed", prefect_services.store)


def test_a_ray_cluster_extracts_and_another_process_answers(start, engine, demo_manifest, prefect_services):
    settings = {"RUN_EXECUTOR": "remote", "RUN_EXTRACT_FLOWS": 0, "RUN_INFER_FLOWS": 0}
    run = start("classify", demo_manifest, "--dataset", "staged", **settings)
    while not count(engine, "staged", PLAN) and run.poll() is None:
        time.sleep(0.1)
    stages = [start("worker", "extract", "--idle-timeout", "8", EXTRACT_RAY_ADDRESS="local")]
    # One after the other: Ray's own processes must be there in fifteen seconds, or its node gives up.
    while not_extracted(engine, "staged") and stages[0].poll() is None:
        time.sleep(0.5)
    stages.append(start("worker", "infer", "--idle-timeout", str(TIMEOUT_S)))

    printed = run.communicate(timeout=TIMEOUT_S)[0]
    stages[1].terminate()
    outputs = [stage.communicate(timeout=TIMEOUT_S)[0] for stage in stages]

    assert run.returncode == 0, (printed, outputs)
    assert f"Reconciled: {JOBS} jobs = {JOBS} labels + 0 failures." in printed
    extracted = int(re.search(r"Extracted (\d+) shard", outputs[0])[1])
    assert extracted > 4
    assert job_counts_by_run(engine, "staged") == [JOBS]
    assert not plan_files(engine, "staged", prefect_services.store)


def test_a_run_starts_flows_in_both_pools_and_remote_workers_execute_them(start, engine, demo_manifest, tmp_path):
    deployed = start("deploy", RUN_EXECUTOR="remote")
    assert "infer/gpu" in deployed.communicate(timeout=TIMEOUT_S)[0]
    for pool in ("cpu", "gpu"):
        home = tmp_path / pool  # each worker has a folder and a home of its own, as on a machine of its own
        home.mkdir()
        start("worker", "start", "--pool", pool, "--type", "process", module="prefect", cwd=home, HOME=home)

    run = start("classify", demo_manifest, "--dataset", "pools", RUN_EXECUTOR="remote", RUN_EXTRACT_FLOWS=2)
    printed = run.communicate(timeout=TIMEOUT_S)[0]

    assert run.returncode == 0, printed
    assert f"Reconciled: {JOBS} jobs = {JOBS} labels + 0 failures." in printed
    assert job_counts_by_run(engine, "pools") == [JOBS]
    holders = select(SHARD.c.holder.distinct()).join(PLAN, PLAN.c.plan_id == SHARD.c.plan_id)
    with engine.connect() as connection:
        (holder,) = connection.execute(holders.where(PLAN.c.dataset == "pools")).scalars()
        cost = connection.execute(select(RUN).where(RUN.c.dataset == "pools")).mappings().one()
    assert f"process {run.pid}" not in holder
    assert all(cost["wall_ms"][part] > 0 for part in ("engine start", "answer", "setup", "audit"))
    assert "work elsewhere" not in cost["wall_ms"]
    assert (cost["engines"], cost["jobs_per_s"] > 0, cost["prompt_tokens"] > 0) == (1, True, True)
    assert cost["bottleneck"]
    assert "jobs per second" in printed

    chosen = ("--ids", "clip-0000-colour,clip-0001-shape", "--force", "--manifest", demo_manifest, "--dataset", "pools")
    again = start("backfill", *chosen, RUN_EXECUTOR="remote")
    printed = again.communicate(timeout=TIMEOUT_S)[0]

    assert again.returncode == 0, printed
    assert job_counts_by_run(engine, "pools") == [JOBS, 2]
    assert count(engine, "pools") == JOBS
