"""The supervisor of a home folder's services: `python -m infra.embedded.supervisor HOME`.

The first command that needs services starts it. A connection to its socket that has requested services is a user of
them, and is closed by the kernel however that user ends. After the last user, unless one of them has requested to keep
them, the supervisor ends the services and itself.

A connection is greeted with a line of JSON that says what is running, and each request, a line of JSON, is answered by
one: `{"start": [names], ...}`, `{"keep": true}`, `{"stop": true}`, of which the last is answered by the end.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import signal
import sys
import time
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.embedded.full_disk import full_disk_named, met_full_disk, require_space, s3_must_restart
from infra.embedded.home import IS_ELSEWHERE, Home, ServiceName, network
from infra.embedded.postgres import Postgres, unset_libpq_variables
from infra.embedded.prefect import PrefectServer, Worker
from infra.embedded.s3_server import S3Server
from infra.logs import json_copy, json_line, message_of
from infra.processes import MARKER, end_marked, free_port
from infra.program import APPLICATION
from reelabel.disk import disk_full_error, temporary_root
from reelabel.errors import ConfigurationError
from reelabel.optional import install_command

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Mapping

    from infra.embedded.home import Service

_LOCKED_WITHIN_S = 5.0  # a supervisor that is ending takes a moment
_FIRST_USER_WITHIN_S = 10.0
_START_TIMEOUT_S = 180.0  # on a busy machine; usually seconds
_ANSWERS_WITHIN_S = 30.0  # for a service that has been ready before
_STOP_GRACE_S = 10.0
# Less often with time: a probe takes CPU time that the starting service needs.
_POLL_S, _LONGEST_POLL_S, _POLL_GROWTH = 0.05, 0.25, 1.3
_ATTEMPTS = 2
_RESTARTS, _RESTARTS_WITHIN_S = 3, 60.0
_EXCERPT_CHARACTERS = 600
_LONGEST_REQUEST_BYTES = 1 << 22
_END_ORDER = ((ServiceName.WORKER,), (ServiceName.PREFECT, ServiceName.S3), (ServiceName.POSTGRES,))
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(slots=True)
class _Running:
    service: Service
    process: asyncio.subprocess.Process
    port: int
    config_hash: str
    cleanup_paths: tuple[str, ...]
    is_ready: bool = False  # before, another process may still take its port

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None


class Supervisor:
    """Starts services for its users, again if they die, and ends them after the last user."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._running: dict[ServiceName, _Running] = {}
        self._services: dict[ServiceName, Service] = {}
        self._locks = {name: asyncio.Lock() for name in ServiceName}
        self._restarted_s: dict[ServiceName, deque[float]] = defaultdict(lambda: deque(maxlen=_RESTARTS))
        self._connections: set[asyncio.StreamWriter] = set()
        self._users: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_kept = self._as_json = False
        self._end = asyncio.Event()

    async def serve(self, listening: socket.socket) -> None:
        """Serve connections until the last user disconnects, or a stop is requested; then end all services."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end.set)
        await asyncio.to_thread(self._home.kill_leftovers)  # of a supervisor that was killed
        loop.call_later(_FIRST_USER_WITHIN_S, self._end_if_unused)
        await asyncio.start_unix_server(self._connected, sock=listening, limit=_LONGEST_REQUEST_BYTES)
        await self._end.wait()
        await self.close()

    async def close(self) -> None:
        self._end.set()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for group in _END_ORDER:
            await asyncio.gather(*map(self._end_service, group))
        await asyncio.to_thread(self._home.kill_leftovers)  # such as an initdb

    async def ensure(self, service: Service) -> int:
        """Start a service, after those that it needs, unless it runs as it would be started now; return its port."""
        await asyncio.gather(*(self.ensure(self._services[name]) for name in service.needs))
        async with self._locks[service.name]:
            found = self._running.get(service.name)
            is_same = found and found.config_hash == service.config_hash()
            is_stuck = found and service.name == ServiceName.S3 and s3_must_restart(self._home.path)
            if found and is_same and not is_stuck and await self._becomes_ready(found, _ANSWERS_WITHIN_S):
                return found.port
            await self._end_service(service.name)
            self._services[service.name] = service
            port = self._home.port(service.name)
            for attempt in range(1, _ATTEMPTS + 1):
                # A process may have taken the port in between; then the second attempt finds another one.
                started = await self._start(service, port)
                if await self._has_started(started, may_die=attempt < _ATTEMPTS):
                    break
            self._watch(self._restart_if_it_ends(started))
            return started.port

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with suppress(ConnectionError, ValueError):  # ValueError: not one of our clients
                _send(writer, self._state())
                while line := await reader.readline():
                    request = json.loads(line)
                    if "start" in request:
                        self._users.add(writer)
                    self._watch(self._answer(request, writer))
        finally:
            if writer in self._users:
                self._users.remove(writer)
                self._end_if_unused()
            if not self._end.is_set():  # otherwise it is closed when this process ends, which its user notices
                self._connections.discard(writer)
                writer.close()

    def _end_if_unused(self) -> None:
        if not self._users and not self._is_kept:
            self._end.set()

    async def _answer(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if self._end.is_set():
            return  # the user finds out when this process has ended, and starts another
        if request.get("stop"):
            self._end.set()
        elif request.get("keep"):
            self._is_kept = True
            _send(writer, {})
        else:
            try:
                with full_disk_named(self._home.path, starting=True):
                    ports = await self._start_all(request)
                _send(writer, {"ports": ports})
            except Exception as error:  # noqa: BLE001 - whatever it is, the user reports it
                message = getattr(error, "message", None) or f"The embedded services do not start: {error!r}"
                _send(writer, {"error": type(error).__name__, "message": message})

    async def _start_all(self, request: Mapping[str, Any]) -> dict[ServiceName, int]:
        self._as_json = request["as_json"]
        services = [self._service(ServiceName(name), request) for name in request["start"]]
        names = [service.name for service in services]
        require_space(self._home, [name for name in names if name not in self._running])
        self._services |= {service.name: service for service in services if service.name not in self._services}
        return dict(zip(names, await asyncio.gather(*map(self.ensure, services)), strict=True))

    def _service(self, name: ServiceName, request: Mapping[str, Any]) -> Service:
        if name == ServiceName.WORKER:
            return Worker(self._home, pool=request["pool"], environment=request["environment"])
        if name == ServiceName.PREFECT:
            return PrefectServer(self._home, as_json=self._as_json)
        return S3Server(self._home) if name == ServiceName.S3 else Postgres(self._home)

    async def _start(self, service: Service, preferred_port: int) -> _Running:
        port = free_port(preferred_port)
        launch = await asyncio.to_thread(service.launch, port)
        output = self._open_log(service.name)
        try:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                env={**launch.environment, MARKER: self._home.marker(service.name)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                cwd=launch.folder,
                umask=launch.umask,
                start_new_session=True,  # Ctrl-C in a terminal does not reach it
                preexec_fn=_end_with_supervisor(os.getpid(), service.stop_signal),
            )
        except OSError as error:
            raise ConfigurationError(
                f"Cannot run the embedded {service.name} ({error.strerror}: {launch.command[0]}); "
                f"run `{install_command('embedded', of=APPLICATION, again=True)}`."
            ) from error
        finally:
            os.close(output)
        running = _Running(service, process, port, service.config_hash(), tuple(launch.cleanup_paths))
        self._running[service.name] = running
        self._home.write_port(service.name, port)
        self._log(f"{service.name} is started as process {process.pid}, port {port}")
        return running

    def _open_log(self, name: ServiceName) -> int:
        """Open the log of a service, which is replaced, for its output; as JSON, through a thread."""
        path = self._home.log(name)
        path.unlink(missing_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return json_copy(log, logger=name) if self._as_json else log

    async def _has_started(self, started: _Running, *, may_die: bool) -> bool:
        """Wait until a new service is ready; return False if it has died and may."""
        name = started.service.name
        if await self._becomes_ready(started, _START_TIMEOUT_S, self._home.log(name)):
            return True
        is_late, excerpt = started.is_alive, self._log_excerpt(name)
        await self._end_service(name)
        if may_die and not is_late:
            return False
        late = f"was not ready within {_START_TIMEOUT_S:.0f} s; the machine may be overloaded"
        raise ConfigurationError(f"The embedded {name} {late if is_late else 'ended during startup'}: {excerpt}")

    async def _becomes_ready(self, running: _Running, within_s: float, log: Path | None = None) -> bool:
        """Wait until a service is ready; return False if it has ended, or the time is over.

        Raises:
            DiskFullError: The log of a new service, which begins with its start, says so; it is ended.
        """
        deadline_s, poll_s = time.monotonic() + within_s, _POLL_S
        while running.is_alive and time.monotonic() < deadline_s:
            # Prefect reports a killed worker as ready for a while.
            if await asyncio.to_thread(running.service.is_ready, running.port) and running.is_alive:
                running.is_ready = True
                return True
            if log and met_full_disk(log):
                break
            await asyncio.sleep(poll_s)
            poll_s = min(poll_s * _POLL_GROWTH, _LONGEST_POLL_S)
        if log and met_full_disk(log):
            await self._end_service(running.service.name)
            raise disk_full_error([self._home.path, temporary_root()])
        return False

    async def _restart_if_it_ends(self, started: _Running) -> None:
        code = await started.process.wait()
        name = started.service.name
        if self._end.is_set() or self._running.get(name) is not started:
            return
        restarted_s, now_s = self._restarted_s[name], time.monotonic()
        if len(restarted_s) == _RESTARTS and now_s - restarted_s[0] < _RESTARTS_WITHIN_S:
            self._log(f"{name} ended again ({code}); it is not started again until it is requested")
            await self._end_service(name)
            return
        restarted_s.append(now_s)
        self._log(f"{name} ended ({code}); it is started again")
        try:
            await self.ensure(started.service)
        except Exception as error:  # noqa: BLE001 - its next user gets the error
            self._log(f"{name} does not start: {error}")

    async def _end_service(self, name: ServiceName) -> None:
        """End a service and all processes that it has started."""
        running = self._running.pop(name, None)
        if running is None:
            return
        for number, grace_s in ((running.service.stop_signal, _STOP_GRACE_S), (signal.SIGKILL, _STOP_GRACE_S)):
            if running.process.returncode is None:
                with suppress(ProcessLookupError, TimeoutError):
                    running.process.send_signal(number)
                    await asyncio.wait_for(running.process.wait(), grace_s)
        await asyncio.to_thread(end_marked, self._home.marker(name))
        for path in running.cleanup_paths:
            with suppress(FileNotFoundError, PermissionError):  # of another user, who took its name in /tmp
                os.unlink(path)  # noqa: PTH108 - as ruff takes a Path's for one that blocks

    def _log(self, message: str) -> None:
        with suppress(OSError):  # a full disk, which is no reason to leave services alone
            sys.stderr.write(f"{json_line(message, logger='supervisor') if self._as_json else message}\n")
            sys.stderr.flush()

    def _log_excerpt(self, name: ServiceName) -> str:
        log = self._home.log(name)
        text = log.read_text(errors="replace") if log.exists() else ""
        lines = [message_of(line.strip()) for line in text.splitlines() if line.strip()]
        return f"{' | '.join(lines[-3:])[-_EXCERPT_CHARACTERS:] or 'no output'} (full log: {log})"

    def _watch(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _state(self) -> dict[str, Any]:
        alive = {name: running for name, running in self._running.items() if running.is_alive}
        return {
            "home": str(self._home.path),
            "network": network(),
            "ending": self._end.is_set(),
            "kept": self._is_kept,
            "users": len(self._users),
            "services": {
                name: {"pid": each.process.pid, "port": each.port if each.is_ready else None}
                for name, each in alive.items()
            },
        }


def _send(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")


def _end_with_supervisor(supervisor: int, number: signal.Signals) -> Callable[[], None]:
    """Return a function for a child to call: it then ends with the thread that starts it, which is the main one."""

    def set_death_signal() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != supervisor:  # it has ended meanwhile
            os._exit(1)

    return set_death_signal


def main(path: str) -> int:
    """Supervise a folder's services in a forked process; return 0 once it, or another supervisor, listens."""
    home = Home(Path(path))
    lock, deadline_s = home.open_lock(), time.monotonic() + _LOCKED_WITHIN_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if connection := home.connect():
                connection.close()
                return 0
        if time.monotonic() > deadline_s:
            return IS_ELSEWHERE
        time.sleep(_POLL_S)
    listening = home.listen()
    if os.fork():
        return 0
    log = os.open(home.log("supervisor"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)  # closes the output that the command waits for
    unset_libpq_variables()
    asyncio.run(_supervise(home, listening))
    return 0


async def _supervise(home: Home, listening: socket.socket) -> None:
    await Supervisor(home).serve(listening)
    home.remove_socket()
    os._exit(0)  # closes the connections, so that clients notice the end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
