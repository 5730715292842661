"""Clients of the supervisor of a home folder, which they start if there is none: start, use and stop its services."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.embedded.full_disk import full_disk_named
from infra.embedded.home import IS_ELSEWHERE, Home, ServiceName, network
from infra.embedded.postgres import Postgres, unset_libpq_variables
from infra.embedded.prefect import PrefectServer, worker_environment
from infra.embedded.s3_server import S3Server
from infra.processes import MARKER
from reelabel.errors import ConfigurationError, DiskFullError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from infra.settings import Settings

_ATTEMPTS = 5
_USES: list[_Use] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """The status of a service; `pid` is None if it is not running, `address` (host:port) if it does not listen."""

    name: ServiceName
    pid: int | None
    address: str | None
    log: Path

    @property
    def is_running(self) -> bool:
        return self.pid is not None


@contextmanager
def running(settings: Settings, *, wanted: frozenset[ServiceName], keep: bool = False) -> Iterator[Settings]:
    """Run services, except those that the user has configured, while the body runs; yield settings with addresses.

    They end after the last command that uses them, however it ends; with `keep`, at `stop`.

    Raises:
        ConfigurationError: A service is not installed or does not start.
        DiskFullError: The disk of their folder is full; also instead of a TransientError of the body.
    """
    with full_disk_named(settings.home, starting=True):
        use = _Use(Home(settings.home))
    with closing(use):
        with full_disk_named(settings.home, starting=True):
            started = use.start(settings, wanted)
            if keep:
                use.keep()
        with full_disk_named(settings.home) if wanted else nullcontext():
            yield started


def start(settings: Settings, *, wanted: frozenset[ServiceName]) -> Settings:
    """Start services, except those that the user has configured; return settings with their addresses and passwords.

    Those that run as they would be started now are left alone. They run for as long as `running` does in this process,
    else until `stop`, or until this process ends. Raises as `running` does.
    """
    home = Home(settings.home)
    for use in _USES:
        if use.home.path == home.path:
            return use.start(settings, wanted)
    use = _Use(home)
    try:
        return use.start(settings, wanted)
    except BaseException:
        use.close()
        raise


def stop(home: Path) -> None:
    """Stop all services of a home folder, even if they are kept, or others use them."""
    folder = Home(home)
    for use in [each for each in _USES if each.home.path == folder.path]:
        use.forget()
    while connection := _connect(folder):
        with closing(connection):
            connection.stop()
    folder.kill_leftovers()


def status(home: Path) -> list[ServiceStatus]:
    """Describe the services of a home folder, which need not exist."""
    found = _state(Home(home)).get("services", {}) if home.exists() else {}
    ports = {name: each["port"] for name, each in found.items() if name != ServiceName.WORKER and each["port"]}
    return [
        ServiceStatus(
            name=name,
            pid=found[name]["pid"] if name in found else None,
            address=f"127.0.0.1:{ports[name]}" if name in ports else None,
            log=home.absolute() / "logs" / f"{name}.log",
        )
        for name in ServiceName
    ]


def in_use(home: Path) -> bool:
    return bool(_state(Home(home)).get("users"))


def is_kept(home: Path) -> bool:
    """Return whether the services of a home folder outlive the commands that use them."""
    return bool(_state(Home(home)).get("kept"))


def missing_services(settings: Settings, wanted: frozenset[ServiceName]) -> frozenset[ServiceName]:
    """Return which of the services must be embedded, as the user has configured none.

    Flows of the user's Prefect run on the user's workers. The embedded Prefect needs the embedded Postgres.
    """
    replaced = set()
    if settings.database.is_set:
        replaced.add(ServiceName.POSTGRES)
    if settings.store.uri is not None:
        replaced.add(ServiceName.S3)
    if settings.prefect.api_url is not None:
        replaced |= {ServiceName.PREFECT, ServiceName.WORKER}
    embedded = wanted - replaced
    return embedded | {ServiceName.POSTGRES} if ServiceName.PREFECT in embedded else embedded


def with_running_services(settings: Settings) -> Settings:
    """Fill in the addresses of running services; start none, and create no folder."""
    if not settings.home.exists():
        return settings
    home = Home(settings.home)
    found = _state(home).get("services", {})
    wanted = missing_services(settings, frozenset(ServiceName))
    ports = {name: found[name]["port"] for name in wanted if name in found and found[name]["port"]}
    if ports:
        home.require_private()
    return _with_addresses(settings, home, ports)


class _EndedError(Exception):
    """The supervisor has ended."""


class _Connection:
    """A connection to a supervisor, with the state that it sent first; the constructor and `ask` raise _EndedError."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lines = connection.makefile("rb")
        self.state = self._receive()

    def ask(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        self._send(request)
        answer = self._receive()
        if "error" in answer:
            kind = DiskFullError if answer["error"] == DiskFullError.__name__ else ConfigurationError
            raise kind(answer["message"])
        return answer

    def stop(self) -> None:
        """End all services, and wait until they have ended."""
        self._send({"stop": True})
        self._wait_for_end()

    def leave(self) -> None:
        """Stop using the services; after their last user, wait until they have ended."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._wait_for_end()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _send(self, request: Mapping[str, Any]) -> None:
        with suppress(OSError):  # the wait for the answer raises
            self._socket.sendall(json.dumps(request).encode() + b"\n")

    def _wait_for_end(self) -> None:
        with suppress(OSError):
            while self._lines.readline():
                pass

    def _receive(self) -> dict[str, Any]:
        line = b""
        with suppress(ConnectionError, ValueError):  # ValueError: another thread has closed it
            line = self._lines.readline()
        if not line:
            raise _EndedError
        found: dict[str, Any] = json.loads(line)
        return found


class _Use:
    """A command's use of the services: a connection to their supervisor."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._connection: _Connection | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        _USES.append(self)

    def start(self, settings: Settings, wanted: frozenset[ServiceName]) -> Settings:
        self.home.require_private()
        embedded = missing_services(settings, wanted)
        if not embedded:
            return _with_addresses(settings, self.home, {})
        for _ in range(_ATTEMPTS):
            with suppress(_EndedError), self._lock:
                return self._start(settings, embedded)
            if self._is_closed:
                break
            self._disconnect()
        raise ConfigurationError(
            f"The supervisor of the services of {self.home.path} ended; see its log {self.home.log('supervisor')}."
        )

    def _start(self, settings: Settings, embedded: frozenset[ServiceName]) -> Settings:
        connection = self._connection = self._connection or _connect_or_start(self.home)
        as_json = settings.log.format == "json"
        ports = connection.ask(start=sorted(embedded - {ServiceName.WORKER}), as_json=as_json)["ports"]
        started = _with_addresses(settings, self.home, {ServiceName(name): port for name, port in ports.items()})
        if ServiceName.WORKER in embedded:
            environment = worker_environment(self.home, started)
            pool = settings.prefect.work_pool
            connection.ask(start=[ServiceName.WORKER], as_json=as_json, pool=pool, environment=environment)
        return started

    def keep(self) -> None:
        if self._connection:
            self._connection.ask(keep=True)

    def close(self) -> None:
        """Stop using the services; after their last user, wait until they have ended. A second call does nothing."""
        self._is_closed = True
        try:
            if self._connection:
                self._connection.leave()
        finally:
            self.forget()

    def forget(self) -> None:
        """Close the connection, as in a forked process, which does not use the services."""
        self._is_closed = True
        self._disconnect()
        if self in _USES:
            _USES.remove(self)

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None


def _forget_all() -> None:
    for use in [*_USES]:
        use.forget()


os.register_at_fork(after_in_child=_forget_all)


def _connect_or_start(home: Home) -> _Connection:
    if found := _connect_to_own(home):
        return found
    _start_supervisor(home)
    if found := _connect_to_own(home):
        return found
    raise _EndedError


def _connect_to_own(home: Home) -> _Connection | None:
    """Connect to the supervisor of a folder; wait for the end of one that is ending, or that began elsewhere."""
    while connection := _connect(home):
        if connection.state["network"] != network():
            connection.close()
            raise _elsewhere_error(home)
        if connection.state["home"] == str(home.path) and not connection.state["ending"]:
            return connection
        with closing(connection):  # the folder was moved: the services would not find their files
            connection.stop()
    return None


def _connect(home: Home) -> _Connection | None:
    while connection := home.connect():
        with suppress(_EndedError):
            return _Connection(connection)
        connection.close()
    return None


def _start_supervisor(home: Home) -> None:
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-P", "-m", "infra.embedded.supervisor", str(home.path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, MARKER: f"supervisor:{home.path}"},
        start_new_session=True,
        check=False,
    )
    if done.returncode == IS_ELSEWHERE:
        raise _elsewhere_error(home)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ConfigurationError(f"The supervisor of the services of {home.path} does not start: {last}")


def _elsewhere_error(home: Home) -> ConfigurationError:
    return ConfigurationError(
        f"The services of {home.path} are already running in another container or on another machine; stop them there "
        "with `reelabel down`, or set REELABEL_HOME to another folder."
    )


def _state(home: Home) -> Mapping[str, Any]:
    connection = _connect(home)
    if connection is None:
        return {}
    with closing(connection):
        return connection.state


def _with_addresses(settings: Settings, home: Home, ports: Mapping[ServiceName, int]) -> Settings:
    updates: dict[str, object] = {"home": home.path}
    if ServiceName.POSTGRES in ports and not settings.database.is_set:
        unset_libpq_variables()
        updates["database"] = Postgres(home).database_settings(ports[ServiceName.POSTGRES], settings.database)
    if ServiceName.S3 in ports:
        updates["store"] = S3Server(home).store_settings(ports[ServiceName.S3], settings.store)
    if ServiceName.PREFECT in ports:
        updates["prefect"] = PrefectServer(home).prefect_settings(ports[ServiceName.PREFECT], settings.prefect)
    return settings.model_copy(update=updates)
