"""Processes of this machine: name, identify, find and end them; free ports."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROC = Path("/proc")
_BOOT = _PROC / "sys/kernel/random/boot_id"
_POLL_S = 0.05
_KILL_WAIT_S = 10.0
_KILL_ROUNDS = 3
_ZOMBIE = "Z"
_LOOPBACK, _LISTENS = "0100007F", "0A"  # 127.0.0.1, and the state of a socket that listens, in /proc/net/tcp
_NO_PROCESS = ("", "-1")
# Of Linux, unless net.ipv4.ip_local_port_range says otherwise.
_SERVER_PORTS = range(10_000, 32_768)
_PORTS_TRIED = 100
# Inherited by child processes, so that those of a service are found even after it has died.
MARKER = "EMBEDDED_SERVICE_OF_REELABEL"


def own_process() -> str | None:
    """Return a unique name of this process, from its boot, namespace and start; None where there is no /proc."""
    if not is_supported():
        return None
    return f"{_namespace()} {os.getpid()} {start_ticks_of(os.getpid())}"


def has_ended(name: str | None) -> bool:
    """Return whether a process is known to have ended; False if it runs, or is not visible from this one."""
    if name is None or not is_supported():
        return False
    namespace, pid, start_ticks = name.rsplit(" ", 2)
    return namespace == _namespace() and not is_alive(int(pid), int(start_ticks))


def _namespace() -> str:
    return f"{_BOOT.read_text().strip()} {(_PROC / 'self/ns/pid').readlink()}"


def is_own_peer(connection: socket.socket) -> bool:
    """Return whether a process of this user listens at the other end of a Unix socket."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.geteuid())


def is_supported() -> bool:
    """Return whether this system has Linux's /proc."""
    return (_PROC / "self" / "stat").exists()


def end_marked(*markers: str) -> None:
    """Kill all processes whose environment has one of these values of `MARKER`: those that services left behind."""
    # Children forked during the search are found in the next round.
    for _ in range(_KILL_ROUNDS):
        marked = _marked(markers)
        if not marked:
            return
        _signal(marked, signal.SIGKILL)
        deadline_s = time.monotonic() + _KILL_WAIT_S
        while time.monotonic() < deadline_s and any(is_alive(*process) for process in marked.items()):
            time.sleep(_POLL_S)


def descendants() -> set[int]:
    parents = {pid: _parent_of(pid) for pid in _pids()}
    found, generation = set[int](), {os.getpid()}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        found |= generation
    return found


def kill_children() -> None:
    """Kill all descendants of this process, except embedded services, which other commands may be using."""
    stopped: set[int] = set()
    # They are stopped before they are killed, until none is new: another thread may be starting one, and they others.
    while found := [pid for pid in descendants() - stopped if not _is_service(pid)]:
        _signal(found, signal.SIGSTOP)
        stopped.update(found)
    _signal(stopped, signal.SIGKILL)


def _is_service(pid: int) -> bool:
    """Tell whether a process is an embedded service, or belongs to another user."""
    try:
        return f"{MARKER}=".encode() in (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return True


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def free_port(preferred: int = 0) -> int:
    """Return a free port on 127.0.0.1, `preferred` if it is free.

    Any other is below those that the kernel gives to connections, one of which could take it before a server does.

    Raises:
        OSError: None was found.
    """
    for port in filter(None, (preferred, *secrets.SystemRandom().sample(_SERVER_PORTS, _PORTS_TRIED))):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"None of {_PORTS_TRIED} ports on 127.0.0.1 is free.")


def free_ports(count: int) -> list[int]:
    """Return so many free ports, all different; raises as `free_port` does."""
    found = set[int]()
    while len(found) < count:
        found.add(free_port())
    return [*found]


def is_own_port(port: int) -> bool:
    """Return whether a process of this user listens on a port of 127.0.0.1."""
    rows = [line.split() for line in (_PROC / "net/tcp").read_text().splitlines()[1:]]
    return [f"{_LOOPBACK}:{port:04X}", _LISTENS, str(os.geteuid())] in [[row[1], row[3], row[7]] for row in rows]


def is_alive(pid: int, start_ticks: int) -> bool:
    """Return whether the process that started then is running; a zombie, or a later one with its id, is not."""
    state, found_ticks = _state_and_start(pid)
    return found_ticks == start_ticks and state != _ZOMBIE


def start_ticks_of(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; -1 if there is no such process."""
    return _state_and_start(pid)[1]


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended, but its parent has not noticed."""
    return _state_and_start(pid)[0] == _ZOMBIE


def _state_and_start(pid: int) -> tuple[str, int]:
    state, *fields = _stat(pid) or _NO_PROCESS
    return state, int(fields[-1])


def _parent_of(pid: int) -> int:
    return int((_stat(pid) or (_ZOMBIE, "0"))[1])


def _stat(pid: int) -> list[str]:
    """Return the state letter of a process, its parent, and what follows up to its start time; empty without one."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    # The name is in parentheses, and can itself contain parentheses and spaces.
    return stat.rpartition(")")[2].split()[:20]


def _pids() -> set[int]:
    return {int(folder.name) for folder in _PROC.iterdir() if folder.name.isdigit()}


def _marked(markers: Iterable[str]) -> dict[int, int]:
    """Return the start times, in clock ticks since boot, of marked processes by their ids."""
    wanted, found = {f"{MARKER}={marker}".encode() for marker in markers}, dict[int, int]()
    for pid in _pids() - {os.getpid()}:
        state, start_ticks = _state_and_start(pid)
        with suppress(OSError):
            environment = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
            if state != _ZOMBIE and not wanted.isdisjoint(environment):
                found[pid] = start_ticks
    return found
