"""One Prefect worker of our own, that runs flows as processes on this machine."""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import signal
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from infra.embedded.environment import export
from infra.embedded.home import ServiceName
from infra.embedded.prefect_server import PrefectServer, prefect_command, prefect_environment
from infra.embedded.service import Launch
from infra.login import login_headers

if TYPE_CHECKING:
    from pathlib import Path

    from infra.embedded.home import Home
    from infra.settings import Settings


# How often it looks for runs; a server next door does not mind, and nobody waits the usual 10 s for a run to begin.
_QUERY_S = "2"


class Worker:
    """Takes flow runs from the work pool; they end with it."""

    name = ServiceName.WORKER
    # Prefect's worker waits for its flow runs on SIGTERM and leaves them on SIGINT: ours go at once.
    stop_signal = signal.SIGINT

    def __init__(self, home: Home, settings: Settings) -> None:
        """Keep what the flow runs shall be told; all addresses in `settings` are filled in."""
        self._home = home
        self._settings = settings

    def launch(self, port: int) -> Launch:  # noqa: ARG002 - it listens nowhere
        """Make the pool if it is not there, and serve it."""
        pool = self._settings.prefect.work_pool
        # A name of its own each time: the server calls a killed worker online for a while yet.
        name = f"embedded-{secrets.token_hex(6)}"
        self._name_path.write_text(name)
        return Launch(
            command=prefect_command("worker", "start", "--pool", pool, "--type", "process", "--name", name),
            environment={
                **prefect_environment(self._home),
                **export(self._settings),
                "PREFECT_WORKER_QUERY_SECONDS": _QUERY_S,
            },
        )

    def is_ready(self, port: int) -> bool:  # noqa: ARG002
        """Ask the server whether it hears from the worker."""
        pool = quote(self._settings.prefect.work_pool, safe="")
        try:
            name = self._name_path.read_text()
            workers = self._post(f"/work_pools/{pool}/workers/filter")
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return any(worker["name"] == name and worker["status"] == "ONLINE" for worker in workers)

    def label(self) -> str:
        """Digest the addresses: a worker that knows other ones must not run our flows."""
        settings = self._settings
        known = export(settings.model_copy(update={"home": self._home.path}))
        names = ("REELABEL_DATABASE_URL", "PREFECT_API_URL", "PREFECT_API_AUTH_STRING")
        addresses = [known.get(name, "") for name in names]
        addresses += [value for name, value in sorted(known.items()) if name.startswith("REELABEL_STORE_")]
        # The server too: another one, at the same address, knows nothing of this worker's pool.
        addresses.append(PrefectServer(self._home).label())
        return hashlib.sha256("\n".join([settings.prefect.work_pool, *addresses]).encode()).hexdigest()[:16]

    @property
    def _name_path(self) -> Path:
        return self._home.folder(self.name) / "name"

    def _post(self, path: str) -> list[dict[str, str]]:
        url = urlsplit(self._settings.prefect.api_url or "")
        connection = http.client.HTTPConnection(url.netloc, timeout=2)
        try:
            headers = {"Content-Type": "application/json"} | login_headers(self._settings.prefect.auth_string)
            connection.request("POST", f"{url.path}{path}", "{}", headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise http.client.HTTPException(answer.reason)
            found: list[dict[str, str]] = json.loads(answer.read())
            return found
        finally:
            connection.close()
