"""A seam."""

from __future__ import annotations

import ctypes
import resource
import signal


def check_mode(mode: str) -> None:
    pass


def lock_down(mode: str, *, memory_bytes: int, threads: int, die_with_parent: bool) -> tuple[str, ...]:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    return ()
