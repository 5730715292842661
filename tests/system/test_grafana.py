"""The dashboard's queries, put to a real Prometheus that has watched a real run."""

import contextlib
import json
import math
import subprocess
import time

import httpx
import pytest

from infra.processes import free_port
from tasks.model.identity import TINY_MODEL
from tests.observed import dashboard_queries, write_observed_manifest
from tests.wait import until


@pytest.fixture
def metrics_port():
    return free_port()


@pytest.fixture
def prometheus(tmp_path, metrics_port):
    """A Prometheus that reads our endpoint twice a second."""
    port = free_port()
    targets = [{"targets": [f"127.0.0.1:{metrics_port}"]}]
    job = {"job_name": "reelabel", "scrape_interval": "500ms", "scrape_timeout": "500ms", "static_configs": targets}
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}))
    options = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    command = ["prometheus", *options, f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        until(lambda: _is_ready(client), details=(tmp_path / "log").read_text)
        yield client
    server.terminate()
    server.wait(30)


def _is_ready(client):
    with contextlib.suppress(httpx.TransportError):
        return client.get("/-/ready").is_success
    return False


def test_every_query_of_the_dashboard_returns_data(prometheus, metrics_port, reelabel, tmp_path):
    manifest = write_observed_manifest(tmp_path)
    began_s = time.time()
    run = reelabel(
        "classify",
        str(manifest),
        "--model",
        str(TINY_MODEL),
        REELABEL_METRICS_PORT=str(metrics_port),
        REELABEL_SHARD_TARGET_JOBS="50",
        REELABEL_MODEL_MAX_CONCURRENT_SHARDS="1",
    )
    assert run.returncode == 1, run.stdout + run.stderr  # some of its jobs have no video

    for title, query in dashboard_queries(interval="1m"):
        window = {"query": query, "start": began_s, "end": time.time(), "step": 0.5}
        answer = prometheus.get("/api/v1/query_range", params=window).json()
        assert answer["status"] == "success", (title, answer)
        values = [float(value) for series in answer["data"]["result"] for _, value in series["values"]]
        assert any(math.isfinite(value) for value in values), title
