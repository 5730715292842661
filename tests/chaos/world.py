"""The services that a run depends on, each of which can be broken separately."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import polars as pl
import psycopg
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from infra.embedded import ServiceName, export, start, status, stop
from infra.embedded.home import Home
from infra.embedded.prefect import basic_auth_headers
from infra.settings import Settings
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.opened import RANGES_MIN_BYTES
from tasks.demo.clips import make_demo
from tasks.model.identity import TINY_ENCODER, TINY_MODEL
from tests.chaos.gate import Gate
from tests.vllm_server import KEY, serve_tiny_model

ROOT = Path(__file__).parents[2]
_SERVERS = frozenset({ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT})
_WATCH_S = 0.5
_STORE_MIB = 288
# So many of the clips are so large that they are read by ranges, which leaves index files.
_LARGE_CLIPS = 12
_FREE_SPACE = RANGES_MIN_BYTES.to_bytes(4) + b"free" + bytes(RANGES_MIN_BYTES - 8)  # of an MP4
_SHARD_JOBS = 50
_LEASE_S = 15


class World:
    """Postgres, S3 and Prefect behind gates, and a worker; services that die are restarted.

    Attributes:
        service: The service of live sessions, of a world that has one.
        cameras: Its clients.
        database: Gate in front of Postgres.
        store: Gate in front of S3.
        settings: Settings of runs, which go through the gates.
        trial_uri: Store of the current trial.
        altered: URIs of its frame and index files that faults have altered.
        index_keys: Keys of the index files of its frame files' videos, by the frame files' URIs.
        disk: Mount point of the S3 server's own disk; None if it could not be mounted.
    """

    def __init__(self, folder, *, model_url=None, wanted=frozenset(ServiceName)):
        """Start everything.

        Args:
            folder: An empty folder.
            model_url: URL of a server with the tiny model; if None, each run loads it.
            wanted: What to start, Postgres and S3 among it.
        """
        self.service, self.cameras = None, ()
        self._wanted = wanted
        self.trial_uri = ""
        self.altered, self.index_keys = set(), {}
        self._folder = folder
        models = {"model": {"name": str(TINY_MODEL)}, "describe": {"model": str(TINY_ENCODER)}}
        self._own = Settings(home=folder / "home", **models)
        self._ended = threading.Event()
        self._stack = ExitStack()
        self._started = []
        self.disk = self._mount(folder / "home" / "s3" / "data")
        started = start(self._own, wanted=_SERVERS & wanted)
        self.database, self._prefect = (
            Gate(partial(self._port, name)) for name in (ServiceName.POSTGRES, ServiceName.PREFECT)
        )
        self.store = Gate(partial(self._port, ServiceName.S3), authority=started.store.ca_file)
        self.settings = self._gated(started, model_url)
        self.restart()
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self):
        """End everything, including runs left by an interrupted suite."""
        self._ended.set()
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        stop(self._own.home)
        self.database.close()
        self.store.close()
        self._prefect.close()
        self._stack.close()

    def _gated(self, started, model_url):
        url = make_url(started.database.url.get_secret_value()).set(port=self.database.port)
        database = started.database.model_copy(update={"url": SecretStr(url.render_as_string(hide_password=False))})
        store = replace(
            started.store, endpoint_url=f"http://127.0.0.1:{self.store.port}", read_timeout_s=5, max_attempts=3
        )
        prefect = started.prefect.model_copy(update={"api_url": f"http://127.0.0.1:{self._prefect.port}/api"})
        gated = {"prefect": prefect, "database": database, "store": store, "home": self._folder / "runs"}
        gated["shard"] = started.shard.model_copy(update={"target_jobs": _SHARD_JOBS})
        gated["model"] = started.model.model_copy(update={"dtype": "float32"})
        if model_url:
            gated["model"] = gated["model"].model_copy(update={"backend": "openai"})
            gated["server"] = started.server.model_copy(update={"url": model_url, "api_key": SecretStr(KEY)})
        return started.model_copy(update=gated)

    def environment(self, **changes):
        """Return the environment of a run; `changes` override variables."""
        return os.environ | export(self.settings) | changes

    def pid(self, name):
        """Return a service's process id; None if it is not running."""
        return next(service.pid for service in status(self._own.home) if service.name == name)

    @contextmanager
    def connection(self):
        """Connect to the database directly, bypassing its gate."""
        url = make_url(self.settings.database.url.get_secret_value())
        direct = url.set(drivername="postgresql", port=self._port(ServiceName.POSTGRES))
        with psycopg.connect(direct.render_as_string(hide_password=False), autocommit=True) as connection:
            yield connection

    def upload(self, clips, seed):
        """Upload clips and their manifest to the store; return the manifest's URI and rows."""
        root = f"{self.settings.store.uri}/clips"
        folder = self._folder / "clips"
        jobs = make_demo(folder, seed=seed, clips=clips, uri_prefix=root)
        objects = ObjectStore(self.settings.store)
        large = sorted(folder.glob("*.mp4"))[:_LARGE_CLIPS]
        for path in sorted(folder.iterdir()):
            objects.replace(f"{root}/{path.name}", path.read_bytes() + (_FREE_SPACE if path in large else b""))
        return f"{root}/manifest.parquet", jobs

    def upload_mixed(self, jobs):
        """Upload a manifest in which a third of these jobs has choices, one words, and one a schema; return its URI."""
        uri, path = f"{self.settings.store.uri}/clips/mixed.parquet", self._folder / "mixed.parquet"
        _mixed(jobs).write_parquet(path)
        ObjectStore(self.settings.store).replace(uri, path.read_bytes())
        return uri

    def restart(self):
        """Start the services that have died, and an S3 server that must be restarted."""
        start(self._own, wanted=self._wanted)

    def start_run(self, arguments, log, **changes):
        """Start a `reelabel` command in a new process group."""
        command = [sys.executable, "-P", "-m", "flows.cli.main", *arguments]
        return self.start(command, log, **changes)

    def start(self, command, log, **changes):
        """Start a command in a new process group."""
        process = subprocess.Popen(
            command,
            env=self.environment(**changes),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=ROOT,
        )
        self._started.append(process)
        return process

    def cancel_flow_runs(self):
        """Mark flow runs whose processes are gone as crashed, as the automation of `reelabel deploy` does."""
        url = f"{self.settings.prefect.api_url}/flow_runs"
        login = basic_auth_headers(self.settings.prefect.auth_string)
        wanted = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "SCHEDULED"]}}}}
        with suppress(httpx.HTTPError):
            for run in httpx.post(f"{url}/filter", json=wanted, headers=login).raise_for_status().json():
                crashed = {"state": {"type": "CRASHED", "message": "Lost."}, "force": True}
                httpx.post(f"{url}/{run['id']}/set_state", json=crashed, headers=login)

    def is_healthy(self):
        """Return whether all services are running."""
        return all(self.pid(name) for name in self._wanted)

    def _port(self, name):
        return Home(self._own.home).port(name)

    def _mount(self, path):
        path.mkdir(parents=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_STORE_MIB}m,mode=700", "tmpfs", str(path)],
            capture_output=True,
            check=False,
        )
        if mounted.returncode:
            return None
        self._stack.callback(subprocess.run, ["umount", "--lazy", str(path)], check=True)
        return path

    def _watch(self):
        """Restart services that have died, as a supervisor would."""
        while not self._ended.wait(_WATCH_S):
            if not self.is_healthy():
                with suppress(Exception):
                    self.restart()


def _mixed(jobs):
    """Take the choices of each clip's second and third question, and give the third a schema of them."""
    number = pl.int_range(pl.len()).over("video_uri")
    schemas = [json.dumps({"enum": choices}) for choices in jobs["choices"].to_list()]
    return jobs.with_columns(
        pl.when(number == 0).then("choices").alias("choices"),
        pl.when(number == 0).then("answer").alias("answer"),
        schema=pl.when(number == 2).then(pl.Series(schemas)),
    )


def kill(pid):
    """Kill a process; return whether it existed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def model_server(folder, *, engine):
    """Run a shared model server unless runs have their own engines; yield its URL, or None."""
    if engine != "openai":
        yield None
        return
    (folder / "vllm").mkdir()
    with serve_tiny_model(folder / "vllm") as url:
        yield url


@contextmanager
def open_world(folder, **options):
    """Open a world in an empty folder; options are those of `World`."""
    world = World(folder, **options)
    try:
        yield world
    finally:
        world.close()
