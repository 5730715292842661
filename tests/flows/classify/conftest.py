"""A run by a real engine in a process of its own, which the tests of this folder share."""

import subprocess
import sys
import time
import urllib.request

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select

from infra.database.connect import connected
from infra.processes import free_port
from tasks.database.tables import RUN
from tasks.demo.clips import make_demo
from tests.flows.runs import environment_of, served_by
from tests.manifests import upload

SETTINGS = {
    "REELABEL_SHARD_TARGET_JOBS": "50",
    "REELABEL_SHARD_LEASE_S": "5",
    "REELABEL_REPORT_BASE_URL": "https://pages.example/runs/",
}


@pytest.fixture(scope="package")
def own_services(separate_services):
    with separate_services() as settings:
        yield settings


@pytest.fixture(scope="package")
def environment(own_services):
    return environment_of(own_services) | SETTINGS


@pytest.fixture(scope="package")
def by_server(environment, stub_server, first_run):
    """Runs by a server come after the first one, whose frames they find."""
    assert first_run.stdout, first_run.stderr
    return served_by(stub_server, environment)


@pytest.fixture(scope="package")
def by_vllm(by_server, vllm_server):
    """The same, where the model's own answers matter."""
    return served_by(vllm_server, by_server)


@pytest.fixture(scope="package")
def engine(own_services):
    with connected(own_services.database) as engine:
        yield engine


@pytest.fixture(scope="package")
def manifest(tmp_path_factory, own_services):
    """A manifest on S3, enough for three shards: 48 clips, and seven jobs whose videos are bad."""
    folder = tmp_path_factory.mktemp("demo")
    root = f"{own_services.store.uri}/demo"
    good = make_demo(folder, seed=77, clips=48, uri_prefix=root)
    (folder / "empty.mp4").touch()
    (folder / "text.mp4").write_text("no video")
    cut = (folder / good["video_uri"][0].rpartition("/")[2]).read_bytes()[:100]
    (folder / "cut.mp4").write_bytes(cut)
    refused = {"host": "file://host/x.mp4", "bucket": "s3://nobody/x.mp4", "long": "/" + "x" * 300}
    bad_uris = {name: f"{root}/{name}.mp4" for name in ("empty", "text", "cut", "gone")} | refused
    bad = (
        good.head(1)
        .select(pl.exclude("job_id", "video_uri"))
        .join(pl.DataFrame({"job_id": list(bad_uris), "video_uri": list(bad_uris.values())}), how="cross")
    )
    pl.concat([good, bad.select(good.columns)]).write_parquet(folder / "manifest.parquet")
    upload(folder, own_services.store, root)
    return f"{root}/manifest.parquet"


@pytest.fixture(scope="package")
def observed_run(environment, manifest, tmp_path_factory):
    """A run as users start it, by an engine of its own; and the last metrics that it showed."""
    folder, port = tmp_path_factory.mktemp("observed"), free_port()
    settings = {"REELABEL_METRICS_PORT": str(port), "REELABEL_LOG_FORMAT": "json"}
    command = [sys.executable, "-m", "flows.cli.main", "classify", manifest, "--dataset", "first"]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        run = subprocess.Popen(command, env=environment | settings, stdout=out, stderr=err)
    shown = ""
    while run.poll() is None:
        shown = _metrics_of(port) or shown
        time.sleep(0.1)
    ended = subprocess.CompletedProcess(
        command, run.returncode, (folder / "out").read_text(), (folder / "err").read_text()
    )
    return ended, shown


def _metrics_of(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


@pytest.fixture(scope="package")
def first_run(observed_run):
    return observed_run[0]


@pytest.fixture(scope="package")
def run_id(first_run, engine):
    """The id of that run; others on the same jobs may follow."""
    assert first_run.stdout, first_run.stderr
    with engine.connect() as connection:
        return connection.execute(
            select(RUN.c.run_id).where(RUN.c.dataset == "first").order_by(RUN.c.started_at).limit(1)
        ).scalar_one()


@pytest.fixture(scope="package")
def metrics(observed_run):
    """The families of the metrics."""
    return list(text_string_to_metric_families(observed_run[1]))
