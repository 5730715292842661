"""Names of processes that other processes on the same machine can check."""

from __future__ import annotations

import os
from pathlib import Path

from infra.embedded.processes import Identity, is_supported, start_ticks_of

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def own_process() -> str | None:
    """Return a name of this process that no other one ever has; None where there is no /proc."""
    if not is_supported():
        return None
    return f"{_place()} {os.getpid()} {start_ticks_of(os.getpid())}"


def has_ended(name: str | None) -> bool:
    """Return whether a process is known to have ended; False if it runs, or is not visible from this one."""
    if name is None or not is_supported():
        return False
    place, pid, start_ticks = name.rsplit(" ", 2)
    return place == _place() and not Identity(pid=int(pid), start_ticks=int(start_ticks)).is_alive()


def _place() -> str:
    """Return this machine's boot and this process's namespace: the same process id elsewhere is another process."""
    return f"{_BOOT.read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
