"""A Prefect server with its UI, of our own, on our own Postgres.

Not on SQLite, Prefect's default: there, writes that meet others are refused or dropped, events
among them that shall start a lost run again.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
from typing import TYPE_CHECKING

from pydantic import SecretStr

from infra.embedded.home import Home, ServiceName
from infra.embedded.postgres import Postgres
from infra.embedded.service import Launch

if TYPE_CHECKING:
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
    """The scheduler and its page."""

    name = ServiceName.PREFECT
    stop_signal = signal.SIGTERM

    def __init__(self, home: Home) -> None:
        """Keep the place of its files, and of its database."""
        self._home = home
        self._postgres = Postgres(home)

    def api_url(self, port: int) -> str:
        """Give the URL that clients use; the page stands at the same port's root."""
        return f"http://127.0.0.1:{port}/api"

    def reached(self, port: int, base: PrefectSettings) -> PrefectSettings:
        """Point `base` at this server."""
        return base.model_copy(update={"api_url": self.api_url(port), "auth_string": SecretStr(self._login())})

    def launch(self, port: int) -> Launch:
        """Make its database at the first start, and keep the page's files in our folder. Postgres must run."""
        database = self._postgres.own_database(_DATABASE).set(drivername="postgresql+asyncpg", query={"ssl": "disable"})
        return Launch(
            command=prefect_command("server", "start", "--host", "127.0.0.1", "--port", str(port)),
            environment={
                # PGSSLMODE and its like are about others.
                **{name: value for name, value in prefect_environment(self._home).items() if not name.startswith("PG")},
                "PREFECT_API_DATABASE_CONNECTION_URL": database.render_as_string(hide_password=False),
                "PREFECT_UI_STATIC_DIRECTORY": str(self._home.folder(self.name) / "ui"),
                "PREFECT_UI_API_URL": self.api_url(port),
                "PREFECT_SERVER_API_AUTH_STRING": self._login(),
            },
        )

    def is_ready(self, port: int) -> bool:
        """Ask for its health."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/api/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def label(self) -> str:
        """Tell it from one that has its database elsewhere."""
        return f"postgres:{self._postgres.port}"

    def _login(self) -> str:
        """Give user and password, which the page asks for as well."""
        return self._home.secret(_SECRET, prefix=f"{_USER}:")


def login_path(home: Path) -> Path:
    """Name the file with the login of the server and its pages, `user:password`."""
    return Home(home).secret_path(_SECRET)


def prefect_command(*arguments: str) -> list[str]:
    """Run Prefect by this Python, and never import what lies in the working folder."""
    return [sys.executable, "-P", "-m", "prefect", *arguments]


def prefect_environment(home: Home) -> dict[str, str]:
    """Give the variables of a Prefect process that knows nothing of the user's own Prefect."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**inherited, **_QUIET, "PREFECT_HOME": str(home.folder(ServiceName.PREFECT)), "PYTHONSAFEPATH": "1"}
