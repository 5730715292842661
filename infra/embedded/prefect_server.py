"""The embedded Prefect server with its UI, on the embedded Postgres.

It does not use SQLite, Prefect's default, where concurrent writes are rejected or dropped, including events that
restart a lost run.
"""

from __future__ import annotations

import http.client
import os
import signal
from typing import TYPE_CHECKING

from infra.embedded.home import Command, Home, ServiceName
from infra.embedded.postgres import Postgres
from infra.logs import PREFECT_JSON_LINES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from infra.settings import PrefectSettings

_USER = "admin"
_DATABASE = "prefect"
_SECRET = "prefect-login"  # noqa: S105 - a file's name
_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
}


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

    def reached(self, port: int, base: PrefectSettings) -> PrefectSettings:
        from pydantic import SecretStr  # noqa: PLC0415 - the supervisor does without

        return base.model_copy(update={"api_url": self.api_url(port), "auth_string": SecretStr(self._login())})

    def launch(self, port: int) -> Command:
        """Create its database on the first start, which requires a running Postgres; keep the UI's files in home."""
        database = f"postgresql+asyncpg://{self._postgres.own_database(_DATABASE)}?ssl=disable"
        return Command(
            command=self._home.prefect_command(
                self.name, "server", "start", "--host", "127.0.0.1", "--port", str(port)
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
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/api/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def config_hash(self) -> str:
        """Identify the server by its database."""
        return f"postgres:{self._home.port(ServiceName.POSTGRES)}"

    def _login(self) -> str:
        return self._home.secret(_SECRET, prefix=f"{_USER}:")


def login_path(home: Path) -> Path:
    """Return the path of the file with the login, `user:password`, of the API and the UI."""
    return Home(home).secret_path(_SECRET)


def prefect_environment(home: Home) -> dict[str, str]:
    """Return the environment of a Prefect process, without the user's own Prefect settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    folder = home.folder(ServiceName.PREFECT)
    # By default, Prefect notes which blocks it registered in ~/.prefect, whatever its home: one note for all servers.
    own = {"PREFECT_HOME": str(folder), "PREFECT_SERVER_MEMO_STORE_PATH": str(folder / "memo_store.toml")}
    return {**inherited, **_QUIET, **own, "PYTHONSAFEPATH": "1"}
