"""One machine with all services, a worker, deployments on a schedule, and `reelabel serve`."""

import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil
import psycopg
from sqlalchemy.engine import make_url

from infra.embedded import ServiceName, export, running, status
from infra.embedded.prefect import basic_auth_headers
from infra.processes import free_port
from infra.settings import Settings
from tasks.model.identity import TINY_ENCODER, TINY_MODEL
from tests.wait import until

ROOT = Path(__file__).parents[2]
_READY_S = 300
_STOP_S = 60


class Machine:
    """Everything that a small team runs on one machine.

    Attributes:
        settings: Settings of whatever runs, with the addresses of the services.
        port: Where `reelabel serve` answers.
        inbox: Folder in the store that is watched for manifests.
        nightly: Folder in the store whose manifests are run on a schedule.
    """

    def __init__(self, folder):
        """Start the services, deploy, and load the models."""
        self._folder, self._stack = folder, ExitStack()
        models = {"model": {"name": str(TINY_MODEL), "dtype": "float32"}, "describe": {"model": str(TINY_ENCODER)}}
        own = Settings(home=folder / "home", **models)
        self.settings = self._stack.enter_context(running(own, wanted=frozenset(ServiceName)))
        self.port = free_port()
        self.inbox, self.nightly = (f"{self.settings.store.uri}/{name}" for name in ("in", "nightly"))
        self.url = f"http://127.0.0.1:{self.port}"
        deploy = ["deploy", "--manifest", f"{self.nightly}/*.parquet", "--dataset", "nightly", "--cron", "*/3 * * * *"]
        deployed = self.run(*deploy, REELABEL_WATCH_MANIFESTS=f"{self.inbox}/*.parquet")
        assert deployed.returncode == 0, deployed.stdout
        load = '["classify","analyze","live"]'
        self._service = self._start("serve", "--port", str(self.port), REELABEL_SERVE_LOAD=load)
        until(self._is_ready, _READY_S, every_s=1)

    def close(self):
        """End everything."""
        self._service.terminate()
        self._service.wait(_STOP_S)
        self._stack.close()

    def run(self, *arguments, **changes):
        """Run a `reelabel` command to its end."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "flows.cli.main", *arguments],
            env=self._environment(changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            check=False,
        )

    @contextmanager
    def connection(self):
        """Connect to the database."""
        url = make_url(self.settings.database.url.get_secret_value()).set(drivername="postgresql")
        with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
            yield connection

    def flow_runs(self):
        """Return all runs that Prefect knows of, oldest first."""
        prefect = self.settings.prefect
        login, found = basic_auth_headers(prefect.auth_string), []
        while True:
            wanted = {"offset": len(found), "limit": 200, "sort": "START_TIME_ASC"}
            page = httpx.post(f"{prefect.api_url}/flow_runs/filter", json=wanted, headers=login, timeout=60)
            found += page.raise_for_status().json()
            if len(page.json()) < wanted["limit"]:
                return found

    def processes(self):
        """Return what runs all the time, by name: the process ids of each, with their children."""
        roots = {"serve": self._service.pid}
        roots |= {each.name.value: each.pid for each in status(self.settings.home) if each.pid}
        supervisor = psutil.Process(roots[ServiceName.POSTGRES]).parent()
        alone = {"supervisor": [supervisor.pid], "worker": [roots.pop(ServiceName.WORKER.value)]}
        return alone | {name: [pid, *_below(pid)] for name, pid in roots.items()}

    def _start(self, *arguments, **changes):
        log = (self._folder / f"{arguments[0]}.log").open("ab")
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "flows.cli.main", *arguments],
            env=self._environment(changes),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=ROOT,
        )

    def _environment(self, changes):
        return os.environ | export(self.settings) | {"COLUMNS": "200"} | changes

    def _is_ready(self):
        assert self._service.poll() is None, f"reelabel serve has ended; see {self._folder}/serve.log"
        try:
            return httpx.get(f"{self.url}/health", timeout=5).is_success
        except httpx.HTTPError:
            return False


def _below(pid):
    try:
        return [each.pid for each in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
