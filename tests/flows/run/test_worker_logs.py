"""Everything that workers and the services beside them print is JSON where JSON is asked for."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import polars as pl
import pytest

from tasks.demo.clips import make_demo
from tasks.model.identity import TINY_MODEL
from tests.stub_server import serve_stub
from tests.vllm_server import KEY

pytestmark = pytest.mark.system

TIMEOUT_S = 300


@pytest.fixture
def start(tmp_path):
    """Start commands, which share services of their own."""
    with serve_stub() as url:
        settings = {
            "HOME": tmp_path / "home",
            "LOG_FORMAT": "json",
            "RUN_EXECUTOR": "remote",
            "RUN_EXTRACT_FLOWS": 0,
            "RUN_INFER_FLOWS": 0,
            "MODEL_BACKEND": "openai",
            "MODEL_NAME": TINY_MODEL,
            "SERVER_URL": url,
            "SERVER_API_KEY": KEY,
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("REELABEL_")}
        environment = inherited | {f"REELABEL_{name}": str(value) for name, value in settings.items()}
        started = []

        def start(*arguments):
            command = [sys.executable, "-W", "always", "-m", "flows.cli", *arguments]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            started.append(subprocess.Popen(command, env=environment, cwd=tmp_path, start_new_session=True, **pipes))
            return started[-1]

        yield start
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        subprocess.run([sys.executable, "-m", "flows.cli", "down"], env=environment, check=False)


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_all_that_workers_and_services_print_is_json_and_says_what_it_is_about(start, tmp_path):
    good = make_demo(tmp_path / "clips", seed=9, clips=20, uri_prefix=str(tmp_path / "clips"))
    gone = good.head(1).with_columns(job_id=pl.lit("gone"), video_uri=pl.lit(str(tmp_path / "gone.mp4")))
    pl.concat([good, gone]).write_parquet(tmp_path / "m.parquet")

    assert start("up").wait(TIMEOUT_S) == 0
    run = start("classify", "m.parquet")
    workers = {stage: start("worker", stage, "--idle-timeout", "20") for stage in ("extract", "infer")}
    worker_logs = {stage: lines_of(worker.communicate(timeout=TIMEOUT_S)[0]) for stage, worker in workers.items()}
    printed = run.communicate(timeout=TIMEOUT_S)[0]

    assert run.returncode == 1, printed  # one job has no video
    run_id = json.loads(next(line for line in printed.splitlines() if '"run"' in line))["run"]
    for stage, lines in worker_logs.items():
        assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
        about_shards = [line for line in lines if line["message"].startswith(("Shard ", "Job "))]
        assert about_shards
        assert {line["run"] for line in about_shards} == {run_id}
        assert {type(line["shard"]) for line in about_shards} == {int}
        assert len({line["plan"] for line in about_shards}) == 1
        ours = [line for line in lines if line["logger"] in {"reelabel", "prefect.flow_runs", "prefect.task_runs"}]
        assert {line["stage"] for line in ours if line["message"] != lines[-1]["message"]} == {stage}
    assert worker_logs["extract"][-1]["message"].startswith("Extracted ")
    assert worker_logs["infer"][-1]["message"].startswith("Answered ")

    logs = {path.stem: lines_of(path.read_text()) for path in (tmp_path / "home" / "logs").glob("*.log")}
    assert {"postgres", "s3", "prefect"} <= logs.keys()
    assert all({"time", "level", "logger", "message"} <= line.keys() for lines in logs.values() for line in lines)
    assert all(logs.values())
