"""The embedded Prefect worker, which runs flows as processes on this machine."""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import signal
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from infra.basic_auth import basic_auth_headers
from infra.embedded.environment import export
from infra.embedded.home import Command, ServiceName
from infra.embedded.prefect_server import PrefectServer, prefect_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infra.embedded.home import Home
    from infra.settings import Settings


# How often it looks for runs; a server next door does not mind, and nobody waits the usual 10 s for a run to begin.
_QUERY_S = "2"


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
            command=self._home.prefect_command(self.name, "worker", "start", *options), environment=self._environment
        )

    def is_ready(self, port: int) -> bool:  # noqa: ARG002
        """Check that the server receives heartbeats from the worker."""
        try:
            workers = self._post(f"/work_pools/{quote(self._pool, safe='')}/workers/filter")
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

    def _post(self, path: str) -> list[dict[str, str]]:
        from pydantic import SecretStr  # noqa: PLC0415 - imported while the worker starts

        url = urlsplit(self._environment["PREFECT_API_URL"])
        connection = http.client.HTTPConnection(url.netloc, timeout=2)
        try:
            headers = {"Content-Type": "application/json"}
            headers |= basic_auth_headers(SecretStr(self._environment["PREFECT_API_AUTH_STRING"]))
            connection.request("POST", f"{url.path}{path}", "{}", headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise http.client.HTTPException(response.reason)
            found: list[dict[str, str]] = json.loads(response.read())
            return found
        finally:
            connection.close()


def worker_environment(home: Home, settings: Settings) -> dict[str, str]:
    """Return the environment of a worker and its flow runs, given settings with all addresses filled in."""
    return {**prefect_environment(home), **export(settings), "PREFECT_WORKER_QUERY_SECONDS": _QUERY_S}
