"""The embedded Prefect worker, which runs flows as processes on this machine."""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import shutil
import signal
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from infra.basic_auth import basic_auth_headers
from infra.embedded.environment import export
from infra.embedded.home import ServiceName
from infra.embedded.prefect_server import PrefectServer, prefect_environment
from infra.embedded.service import Launch

if TYPE_CHECKING:
    from pathlib import Path

    from infra.embedded.home import Home
    from infra.settings import Settings


# How often it looks for runs; a server next door does not mind, and nobody waits the usual 10 s for a run to begin.
_QUERY_S = "2"


class Worker:
    """Executes flow runs of the work pool; they end when it ends."""

    name = ServiceName.WORKER
    # On SIGTERM, a Prefect worker waits for its flow runs; on SIGINT it exits, and its flow runs are killed next.
    stop_signal = signal.SIGINT

    def __init__(self, home: Home, settings: Settings) -> None:
        """Store the settings for flow runs, with all addresses filled in."""
        self._home = home
        self._settings = settings

    def launch(self, port: int) -> Launch:  # noqa: ARG002 - it does not listen
        """Create the work pool if it does not exist, and serve it."""
        pool = self._settings.prefect.work_pool
        # A new name each time, because the server reports a killed worker as online for a while.
        name = f"embedded-{secrets.token_hex(6)}"
        self._name_path.write_text(name)
        temporary = self._home.folder(self.name) / "temporary"
        shutil.rmtree(temporary, ignore_errors=True)  # of a worker that was killed
        temporary.mkdir(mode=0o700)
        prefect = [sys.executable, "-P", "-m", "infra.embedded.worker_main", str(temporary)]
        return Launch(
            command=[*prefect, "worker", "start", "--pool", pool, "--type", "process", "--name", name],
            environment={
                **prefect_environment(self._home),
                **export(self._settings),
                "PREFECT_WORKER_QUERY_SECONDS": _QUERY_S,
            },
        )

    def is_ready(self, port: int) -> bool:  # noqa: ARG002
        """Check that the server receives heartbeats from the worker."""
        pool = quote(self._settings.prefect.work_pool, safe="")
        try:
            name = self._name_path.read_text()
            workers = self._post(f"/work_pools/{pool}/workers/filter")
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return any(worker["name"] == name and worker["status"] == "ONLINE" for worker in workers)

    def label(self) -> str:
        """Hash the addresses: a worker with other addresses must not run our flows."""
        settings = self._settings
        known = export(settings.model_copy(update={"home": self._home.path}))
        names = ("REELABEL_DATABASE_URL", "PREFECT_API_URL", "PREFECT_API_AUTH_STRING")
        addresses = [known.get(name, "") for name in names]
        addresses += [value for name, value in sorted(known.items()) if name.startswith("REELABEL_STORE_")]
        # Includes the server: another one at the same address does not have this worker's pool.
        addresses.append(PrefectServer(self._home).label())
        return hashlib.sha256("\n".join([settings.prefect.work_pool, *addresses]).encode()).hexdigest()[:16]

    @property
    def _name_path(self) -> Path:
        return self._home.folder(self.name) / "name"

    def _post(self, path: str) -> list[dict[str, str]]:
        url = urlsplit(self._settings.prefect.api_url or "")
        connection = http.client.HTTPConnection(url.netloc, timeout=2)
        try:
            headers = {"Content-Type": "application/json"} | basic_auth_headers(self._settings.prefect.auth_string)
            connection.request("POST", f"{url.path}{path}", "{}", headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise http.client.HTTPException(response.reason)
            found: list[dict[str, str]] = json.loads(response.read())
            return found
        finally:
            connection.close()
