"""The embedded Prefect server with its UI, on the embedded Postgres, and its worker.

The server does not use SQLite, Prefect's default, where concurrent writes are rejected or dropped, including events
that restart a lost run.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import secrets
import shutil
import signal
import sys
from base64 import b64encode
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from infra.embedded.environment import export
from infra.embedded.home import Command, Home, ServiceName
from infra.embedded.postgres import Postgres
from infra.logs import PREFECT_JSON_LINES
from infra.processes import is_own_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pydantic import SecretStr

    from infra.settings import PrefectSettings, Settings

# How often a worker polls for runs, so that they begin sooner than with Prefect's default of 10 seconds.
_QUERY_S = "2"
_ANSWERS = {http.client.OK, http.client.UNAUTHORIZED, http.client.FORBIDDEN}
_USER = "admin"
_DATABASE = "prefect"
_SECRET = "prefect-login"  # noqa: S105 - a file's name
# A worker would make its `runner_storage` in the usual temporary folder, where it belongs to the first user who has run
# one. Only Prefect itself uses another folder; flow runs use the usual one.
# Most of what Prefect imports is never garbage, so garbage is collected rarely, and not at exit.
_MAIN = """
import atexit, gc, sys, tempfile
gc.set_threshold(10_000, *gc.get_threshold()[1:])
atexit.register(gc.freeze)
tempfile.tempdir = sys.argv.pop(1)
from prefect.cli import app
app()
"""
_QUIET = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_CLI_PROMPT": "false"}


class PrefectServer:
    name = ServiceName.PREFECT
    needs: Sequence[ServiceName] = (ServiceName.POSTGRES,)
    stop_signal = signal.SIGTERM

    def __init__(self, home: Home, *, as_json: bool = False) -> None:
        self._home = home
        self._log_variables = PREFECT_JSON_LINES if as_json else {}
        self._postgres = Postgres(home)

    def api_url(self, port: int) -> str:
        return f"http://127.0.0.1:{port}/api"

    def prefect_settings(self, port: int, base: PrefectSettings) -> PrefectSettings:
        from pydantic import SecretStr  # noqa: PLC0415 - the supervisor does without

        return base.model_copy(update={"api_url": self.api_url(port), "auth_string": SecretStr(self._login())})

    def launch(self, port: int) -> Command:
        """Create its database on the first start, which requires a running Postgres; keep the UI's files in home."""
        database = f"postgresql+asyncpg://{self._postgres.create_database(_DATABASE)}?ssl=disable"
        return Command(
            command=_prefect_command(
                self._home, self.name, "server", "start", "--host", "127.0.0.1", "--port", str(port)
            ),
            environment={
                # PG* variables such as PGSSLMODE concern other servers.
                **{name: value for name, value in prefect_environment(self._home).items() if not name.startswith("PG")},
                "PREFECT_API_DATABASE_CONNECTION_URL": database,
                "PREFECT_UI_STATIC_DIRECTORY": str(self._home.folder(self.name) / "ui"),
                "PREFECT_UI_API_URL": self.api_url(port),
                "PREFECT_SERVER_API_AUTH_STRING": self._login(),
                **self._log_variables,
            },
        )

    def is_ready(self, port: int) -> bool:
        if not is_own_port(port):  # another user's, who has seen it among the arguments, and would get the login
            return False
        try:
            return ask(f"{self.api_url(port)}/health")[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def config_hash(self) -> str:
        """Identify the server by its database."""
        return f"postgres:{self._home.port(ServiceName.POSTGRES)}"

    def _login(self) -> str:
        return self._home.secret(_SECRET, prefix=f"{_USER}:")


def login_path(home: Path) -> Path:
    """Return the path of the file with the login, `user:password`, of the API and the UI."""
    return Home(home).secret_path(_SECRET)


class Worker:
    """Executes flow runs of the work pool; they end when it ends."""

    name = ServiceName.WORKER
    needs: Sequence[ServiceName] = (ServiceName.PREFECT,)
    # On SIGTERM, a Prefect worker waits for its flow runs; on SIGINT it exits, and its flow runs are killed next.
    stop_signal = signal.SIGINT

    def __init__(self, home: Home, *, pool: str, environment: Mapping[str, str]) -> None:
        self._home = home
        self._pool = pool
        self._environment = environment
        # A new name each time, because the server reports a killed worker as online for a while.
        self._worker = ""

    def launch(self, port: int) -> Command:  # noqa: ARG002 - it does not listen
        self._worker = f"embedded-{secrets.token_hex(6)}"
        options = ("--pool", self._pool, "--type", "process", "--name", self._worker)
        return Command(
            command=_prefect_command(self._home, self.name, "worker", "start", *options), environment=self._environment
        )

    def is_ready(self, port: int) -> bool:  # noqa: ARG002
        """Check that the server receives heartbeats from the worker."""
        from pydantic import SecretStr  # noqa: PLC0415 - imported while the worker starts

        url = f"{self._environment['PREFECT_API_URL']}/work_pools/{quote(self._pool, safe='')}/workers/filter"
        login = SecretStr(self._environment["PREFECT_API_AUTH_STRING"])
        try:
            status, answer = ask(url, login, body="{}")
            workers = json.loads(answer) if status == http.client.OK else []
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return any(worker["name"] == self._worker and worker["status"] == "ONLINE" for worker in workers)

    def config_hash(self) -> str:
        """Hash the addresses: a worker with other addresses must not run our flows."""
        names = ("REELABEL_DATABASE_URL", "PREFECT_API_URL", "PREFECT_API_AUTH_STRING")
        addresses = [self._environment.get(name, "") for name in names]
        addresses += [value for name, value in sorted(self._environment.items()) if name.startswith("REELABEL_STORE_")]
        # Includes the server: another one at the same address does not have this worker's pool.
        addresses.append(PrefectServer(self._home).config_hash())
        return hashlib.sha256("\n".join([self._pool, *addresses]).encode()).hexdigest()[:16]


def _prefect_command(home: Home, service: ServiceName, *arguments: str) -> list[str]:
    """Return a command of Prefect's with a temporary folder of its own, which is emptied."""
    temporary = home.folder(service) / "temporary"
    shutil.rmtree(temporary, ignore_errors=True)  # of one that was killed
    temporary.mkdir(mode=0o700)
    return [sys.executable, "-P", "-c", _MAIN, str(temporary), *arguments]


def basic_auth_headers(login: SecretStr | None) -> dict[str, str]:
    """Return the request headers for a login `user:password` of Prefect's API; none if there is no login."""
    return {} if login is None else {"Authorization": f"Basic {b64encode(login.get_secret_value().encode()).decode()}"}


def ask(
    url: str, login: SecretStr | None = None, *, body: str | None = None, timeout_s: float = 2
) -> tuple[int, bytes]:
    """Get a URL of Prefect's API, or post JSON to it; return the answer's status and body.

    Raises:
        OSError, HTTPException, ValueError: There is no answer, or one that neither is fine nor asks for a login.
    """
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    # Host and port only: a password in the URL must not appear in an error message.
    with closing(kind(parts.hostname or "", parts.port, timeout=timeout_s)) as connection:
        headers = basic_auth_headers(login) | ({"Content-Type": "application/json"} if body else {})
        connection.request("POST" if body else "GET", parts.path, body, headers)
        answer = connection.getresponse()
        if answer.status not in _ANSWERS:
            raise http.client.HTTPException(f"HTTP {answer.status} {answer.reason}")
        return answer.status, answer.read()


def prefect_environment(home: Home) -> dict[str, str]:
    """Return the environment of a Prefect process, without the user's own Prefect settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    folder = home.folder(ServiceName.PREFECT)
    # By default, Prefect notes which blocks it registered in ~/.prefect, whatever its home: one note for all servers.
    own = {"PREFECT_HOME": str(folder), "PREFECT_SERVER_MEMO_STORE_PATH": str(folder / "memo_store.toml")}
    return {**inherited, **_QUIET, **own, "PYTHONSAFEPATH": "1"}


def worker_environment(home: Home, settings: Settings) -> dict[str, str]:
    """Return the environment of a worker and its flow runs, given settings with all addresses filled in."""
    return {**prefect_environment(home), **export(settings), "PREFECT_WORKER_QUERY_SECONDS": _QUERY_S}
