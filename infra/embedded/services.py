"""Lifecycle of the embedded services, which are shared by all commands and stopped by the last one.

Every command holds a shared lock while it works. On exit it tries to make the lock exclusive; if that succeeds, it is
the last one, and stops the services unless they are kept.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from infra.embedded.addresses import missing_services, with_addresses
from infra.embedded.full_disk import full_disk_named, require_room, s3_must_restart
from infra.embedded.home import Home, ServiceName
from infra.embedded.lifecycle import end_service, ensure_started
from infra.embedded.postgres import Postgres, forget_variables
from infra.embedded.prefect_server import PrefectServer
from infra.embedded.processes import kill_children, uninterrupted
from infra.embedded.s3_server import S3Server
from infra.embedded.worker import Worker
from infra.interrupts import at_forced_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from infra.embedded.service import Service
    from infra.settings import Settings

_STOP_SIGNALS = {service.name: service.stop_signal for service in (Postgres, S3Server, PrefectServer, Worker)}

_USES: list[_Use] = []
_END_ORDER = ((ServiceName.WORKER,), (ServiceName.PREFECT, ServiceName.S3), (ServiceName.POSTGRES,))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """The status of a service.

    Attributes:
        name: The service.
        pid: Its process id; None if it is not running.
        address: Its host:port; None if it does not listen.
        log: The path of its log.
    """

    name: ServiceName
    pid: int | None
    address: str | None
    log: Path

    @property
    def is_running(self) -> bool:
        """Whether its process is running."""
        return self.pid is not None


def start(settings: Settings, *, wanted: frozenset[ServiceName]) -> Settings:
    """Start the wanted services, except those that the user has configured.

    Safe to call again: running services are left alone, but for an S3 server that must be restarted. On failure or
    interruption, the services it has started are stopped; those that were running before are not.

    Returns:
        The settings, with the addresses and passwords of the services filled in.

    Raises:
        DiskFullError: There is no room for what the services write.
        ConfigurationError: A service is not installed or does not start, or the folder is not this user's own.
    """
    home = Home(settings.home)
    home.require_private()
    ours = missing_services(settings, wanted)
    if ServiceName.POSTGRES in ours and not settings.database.is_set:
        forget_variables()
    with home.starting():
        if ServiceName.S3 in ours and s3_must_restart(home):
            _end(home, {ServiceName.S3})
        before = {name for name in ServiceName if _is_running(home, name)}
        require_room(home, ours - before)
        cancelled = threading.Event()
        try:
            return _start_all(settings, home, ours, cancelled)
        except BaseException:
            with uninterrupted():
                _end(home, set(ServiceName) - before)
            raise


def stop(home: Path) -> None:
    """Stop all services of a home folder, even if they are kept."""
    folder = Home(home)
    with uninterrupted(), folder.starting():
        folder.release()
        _end(folder, set(ServiceName))


def in_use(home: Path) -> bool:
    """Return whether a command is using the services of a home folder."""
    with Home(home).open_in_use_lock() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_kept(home: Path) -> bool:
    """Return whether the services of a home folder outlive the commands that use them."""
    return Home(home).is_kept


def status(home: Path) -> list[ServiceStatus]:
    """Return the status of every service of a home folder."""
    folder = Home(home)
    return [_status_of(folder, name) for name in ServiceName]


@contextmanager
def running(settings: Settings, *, wanted: frozenset[ServiceName], keep: bool = False) -> Iterator[Settings]:
    """Run the wanted services, except those that the user has configured, while the caller works.

    Ctrl-C and SIGTERM leave no process behind, whenever they arrive. Call it from the main thread. With `keep`, leave
    the services running for later commands, until `stop`.

    Yields:
        The settings returned by `start`.

    Raises:
        ConfigurationError: A service is not installed or does not start.
        DiskFullError: The disk of their folder is full; also instead of a TransientError of the body.
    """
    with full_disk_named(settings.home, starting=True):
        use = _Use(Home(settings.home))
    # Cleans up even if an interrupt arrives between two of these lines.
    atexit.register(use.end)
    try:
        with termination_raises():
            use.begin()
            with full_disk_named(settings.home, starting=True):
                started = start(settings, wanted=wanted)
                if keep:
                    use.home.keep()
            with full_disk_named(settings.home) if wanted else nullcontext():
                yield started
    finally:
        use.end()
        atexit.unregister(use.end)


def _kill_ours() -> None:
    """Kill all that this process has started; services only if no other command uses them, and they are not kept."""
    kill_children()
    for use in _USES:
        use.kill()


at_forced_end(_kill_ours)


class _Use:
    """A command's use of the services."""

    def __init__(self, home: Home) -> None:
        _USES.append(self)
        self.home = home
        self._owner = os.getpid()
        self._file = home.open_in_use_lock()

    def begin(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def end(self) -> None:
        """Release the lock, and stop the services if this is the last command. A second call does nothing."""
        if self._file.closed or os.getpid() != self._owner:
            return
        with uninterrupted(), self._file:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not self.home.is_kept:
                stop(self.home.path)
            # A forked process may still hold the file open, and with it the lock.
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def kill(self) -> None:
        """Kill the services if no other command uses them, even while `end` is stopping them."""
        with suppress(BlockingIOError, ValueError):  # another command uses them; or they have ended
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self.home.is_kept:
                for name in ServiceName:
                    end_service(name, self.home, signal.SIGKILL)


@contextmanager
def termination_raises() -> Iterator[None]:
    """Make SIGTERM raise SystemExit, so that it unwinds the command as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _start_all(settings: Settings, home: Home, ours: frozenset[ServiceName], cancelled: threading.Event) -> Settings:
    """Start the servers, then the worker, which must know all of them."""
    servers: list[Service] = [
        Postgres(home),
        S3Server(home),
        PrefectServer(home, as_json=settings.log.format == "json"),
    ]
    as_json = settings.log.format == "json"
    start_together = partial(_start_together, home=home, cancelled=cancelled, as_json=as_json)
    ports = start_together([server for server in servers if server.name in ours])
    started = with_addresses(settings, home, ports)
    if ServiceName.WORKER in ours:
        start_together([Worker(home, started)])
    return started


def _start_together(
    services: list[Service], *, home: Home, cancelled: threading.Event, as_json: bool
) -> dict[ServiceName, int]:
    """Start services side by side; Prefect, which keeps its data in Postgres, as soon as that is ready."""
    if not services:
        return {}
    futures: dict[ServiceName, Future[int]] = {}

    def begin(service: Service) -> int:
        if service.name == ServiceName.PREFECT:
            futures[ServiceName.POSTGRES].result()
        return ensure_started(service, home, cancelled, as_json=as_json)

    with ThreadPoolExecutor(len(services), thread_name_prefix="start") as pool:
        try:
            for service in services:
                futures[service.name] = pool.submit(begin, service)
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            # Wait for the threads, so that none starts a process after this.
            with uninterrupted():
                cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)
            raise


def _end(home: Home, names: set[ServiceName]) -> None:
    """End each before the servers that it talks to, and those that talk to none side by side."""
    for group in _END_ORDER:
        with ThreadPoolExecutor(len(group), thread_name_prefix="stop") as pool:
            ended = [pool.submit(end_service, name, home, _STOP_SIGNALS[name]) for name in group if name in names]
        for future in ended:
            future.result()


def _is_running(home: Home, name: ServiceName) -> bool:
    record = home.record(name)
    return record is not None and record.process.is_alive()


def _status_of(home: Home, name: ServiceName) -> ServiceStatus:
    record = home.record(name)
    if record is None or not record.process.is_alive():
        return ServiceStatus(name=name, pid=None, address=None, log=home.log(name))
    address = f"127.0.0.1:{record.port}" if name != ServiceName.WORKER else None
    return ServiceStatus(name=name, pid=record.process.pid, address=address, log=home.log(name))
