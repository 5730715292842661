"""Two machines by network namespaces: their own addresses, homes and folders, and no shared loopback."""

import os
import secrets
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sqlalchemy import func, select
from sqlalchemy.engine import make_url

from infra.database.connect import connected
from infra.embedded import export
from tasks.database.tables import PLAN, RESULT, SHARD
from tasks.demo.clips import make_demo
from tests.chaos.gate import Gate
from tests.manifests import upload

CLIPS = 50
JOBS = 3 * CLIPS
ROOT = Path(__file__).parents[2]


class Machine:
    """A network namespace with an address of its own, from which a gate leads to each service here, and no more."""

    def __init__(self, number, stack):
        self.name = f"reelabel-{secrets.token_hex(3)}"
        self._here, there = f"10.213.{number}.1", f"10.213.{number}.2"
        inner, outer = f"rl{secrets.token_hex(3)}", f"rl{secrets.token_hex(3)}"
        self._outer = outer
        self._stack = stack
        ip("netns", "add", self.name)
        stack.callback(ip, "netns", "delete", self.name)
        ip("link", "add", outer, "type", "veth", "peer", "name", inner)
        stack.callback(ip, "link", "delete", outer)
        ip("link", "set", inner, "netns", self.name)
        ip("address", "add", f"{self._here}/30", "dev", outer)
        ip("link", "set", outer, "up")
        for command in (["address", "add", f"{there}/30", "dev", inner], ["link", "set", inner, "up"]):
            ip("-n", self.name, *command)
        ip("-n", self.name, "link", "set", "lo", "up")

    def address(self, port, authority=None):
        """Give the host and port at which this machine finds a service of that port here."""
        gate = Gate(port, host=self._here, authority=authority)
        self._stack.callback(gate.close)
        return f"{self._here}:{gate.port}"

    def cut_off(self):
        """Let every packet vanish, as with the other machine's power."""
        ip("link", "set", self._outer, "down")

    def start(self, command, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command], **options)


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def machines():
    with ExitStack() as stack:
        try:
            yield Machine(1, stack), Machine(2, stack)
        except (subprocess.CalledProcessError, FileNotFoundError):
            pytest.skip("network namespaces need root and iproute2")


def settings_on(machine, settings):
    """Give settings that name the services as a machine finds them."""
    url = make_url(settings.database.url.get_secret_value())
    host, _, port = machine.address(url.port).partition(":")
    named = url.set(host=host, port=int(port)).render_as_string(hide_password=False)
    api, store = urlsplit(settings.prefect.api_url), urlsplit(settings.store.endpoint_url)
    return {
        "REELABEL_DATABASE_URL": named,
        "REELABEL_STORE_ENDPOINT_URL": f"http://{machine.address(store.port, settings.store.ca_file)}",
        "REELABEL_PREFECT_API_URL": (there := f"http://{machine.address(api.port)}{api.path}"),
        "PREFECT_API_URL": there,
    }


@contextmanager
def worker(machine, pool, environment, folder):
    """Run a Prefect worker on a machine."""
    home = folder / pool
    home.mkdir()
    own = {"HOME": str(home), "REELABEL_HOME": str(home / "reelabel"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
    with (home / "log").open("wb") as log:
        options = {"cwd": home, "stdout": log, "stderr": log, "start_new_session": True}
        process = machine.start(command, env=environment | own, **options)
    try:
        yield home / "log"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # as a machine is switched off: its flows have ended by then
        process.wait()


@pytest.mark.timeout(600)
def test_a_machine_that_decodes_and_one_with_the_model_share_a_run(machines, prefect_services, tmp_path):
    root = f"{prefect_services.store.uri}/two-machines"
    make_demo(tmp_path / "clips", seed=7, clips=CLIPS, uri_prefix=root)
    upload(tmp_path / "clips", prefect_services.store, root)
    shared = {"REELABEL_RUN_EXECUTOR": "remote", "REELABEL_SHARD_TARGET_JOBS": "50", "REELABEL_MODEL_DTYPE": "float32"}
    here = os.environ | export(prefect_services) | shared | {"COLUMNS": "160", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "flows.cli.main"]
    subprocess.run([*command, "deploy"], env=here, check=True, capture_output=True)
    cpu, gpu = machines

    with (
        worker(cpu, "cpu", here | settings_on(cpu, prefect_services), tmp_path) as cpu_log,
        worker(gpu, "gpu", here | settings_on(gpu, prefect_services), tmp_path) as gpu_log,
    ):
        classify = [*command, "classify", f"{root}/manifest.parquet", "--dataset", "two-machines"]
        run = subprocess.run(classify, env=here, capture_output=True, text=True, timeout=400, check=False)

    assert run.returncode == 0, (run.stdout, run.stderr, cpu_log.read_text(), gpu_log.read_text())
    assert f"Reconciled: {JOBS} jobs = {JOBS} labels + 0 failures." in run.stdout
    assert "extract" in cpu_log.read_text()
    assert "infer" in gpu_log.read_text()
    with connected(prefect_services.database) as database, database.connect() as connection:
        count = select(func.count()).where(RESULT.c.dataset == "two-machines")
        assert connection.execute(count).scalar_one() == JOBS
        plan = select(PLAN.c.plan_id).where(PLAN.c.dataset == "two-machines").scalar_subquery()
        states = select(SHARD.c.state.distinct()).where(SHARD.c.plan_id == plan)
        assert connection.execute(states).scalars().all() == ["done"]


def test_a_machine_cannot_reach_the_loopback_of_another(machines, prefect_services):
    port = urlsplit(prefect_services.prefect.api_url).port
    ask = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)"

    refused = machines[0].start([sys.executable, "-c", ask, "127.0.0.1", str(port)], stderr=subprocess.PIPE)
    assert b"ConnectionRefusedError" in refused.communicate()[1]

    host, _, gate = machines[0].address(port).partition(":")
    assert machines[0].start([sys.executable, "-c", ask, host, gate]).wait() == 0


ASKING = """
import sys

import sqlalchemy

from infra.database.connect import connect, connected, database_errors
from infra.errors import DatabaseUnavailableError
from infra.settings import DatabaseSettings

try:
    with database_errors(), connect(DatabaseSettings(url=sys.argv[1])).connect() as connection:
        print("asks", flush=True)
        connection.execute(sqlalchemy.text("SELECT pg_sleep(300)"))
except DatabaseUnavailableError as error:
    print(error.message)
"""


def test_a_postgres_that_vanishes_during_a_statement_is_noticed(machines, services):
    machine, _ = machines
    url = make_url(services.database.url.get_secret_value())
    host, _, port = machine.address(url.port).partition(":")
    there = url.set(host=host, port=int(port)).render_as_string(hide_password=False)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    asking = machine.start([sys.executable, "-c", ASKING, there], env=environment, stdout=subprocess.PIPE, text=True)
    assert asking.stdout.readline() == "asks\n"

    machine.cut_off()

    output, _ = asking.communicate(timeout=150)
    assert "could not receive data from server" in output
