"""The sandbox of a decoding process: a video that takes over its decoder finds nothing to attack.

Its layers: resource limits; no privileges; Landlock (no paths, TCP or signals); seccomp (memory and open descriptors
only).
"""

from __future__ import annotations

import errno
import platform
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from reelabel.errors import ConfigurationError, SandboxUnavailableError
from reelabel.sandbox.linux import (
    ARCHITECTURE,
    apply_landlock,
    describe_abi,
    drop_privileges,
    end_with_parent,
    landlock_abi,
    limit_resources,
)
from reelabel.sandbox.seccomp import ARCHITECTURES, apply_seccomp, is_filter_available

if TYPE_CHECKING:
    from collections.abc import Callable

SandboxMode = Literal["auto", "require", "off"]

_PRIVILEGES: Final = "privileges"
_LANDLOCK: Final = "landlock"
_SECCOMP: Final = "seccomp"
_REFUSED = {errno.EPERM, errno.EACCES}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the sandbox: `detail` is what it denies, or why it is not available; `advice` is then what to do."""

    name: str
    is_available: bool
    detail: str
    advice: str = ""


def probe() -> tuple[Layer, ...]:
    """Return the layers, and which of them the kernel offers this process; changes nothing."""
    return (Layer(_PRIVILEGES, True, "no capabilities, no new privileges"), _probe_landlock(), _probe_seccomp())


def check_mode(mode: SandboxMode) -> None:
    """Check, before processes are started, that they can be locked as `mode` demands.

    Raises ConfigurationError if there is no such mode, and SandboxUnavailableError if a layer is required and not
    available.
    """
    if mode not in get_args(SandboxMode):
        raise ConfigurationError(f"sandbox is {mode!r}; it must be {', '.join(get_args(SandboxMode))}.")
    missing = next((found for found in probe() if not found.is_available), None)
    if mode == "require" and missing:
        raise SandboxUnavailableError(
            f"Decoding processes cannot be locked, as extract.sandbox requires: {missing.detail}; {missing.advice}, "
            "or set extract.sandbox to auto."
        )


def enter_sandbox(
    mode: SandboxMode,
    *,
    memory_bytes: int,
    threads: int = 1,
    file_bytes: int | None = None,
    descriptors: int = 8,
    die_with_parent: bool = False,
) -> tuple[str, ...]:
    """Sandbox this process for good; call it once, after all imports and before other threads are started.

    Afterwards, the process can read and write its open descriptors, use memory and memfds, and start threads. It can
    open nothing, import nothing, and reach no other process but through its connected socket.

    Args:
        mode: `auto` applies what the kernel offers, `require` demands all of it, and `off` only limits resources.
        memory_bytes: Size of the address space.
        threads: Threads that a video is decoded with; if 1, none can be started.
        file_bytes: Size of a memfd; None is `memory_bytes`.
        descriptors: How many descriptors may be open; each may be a memfd, which is not part of `memory_bytes`.
        die_with_parent: Let the kernel kill this process when the thread that started it ends.

    Returns the names of the layers that it lacks; raises SandboxUnavailableError if one of them is required.
    """
    limit_resources(memory_bytes=memory_bytes, file_bytes=file_bytes or memory_bytes, descriptors=descriptors)
    is_alone = _is_single_threaded()
    missing: dict[str, str] = {}
    if mode != "off":
        missing |= _try(_PRIVILEGES, drop_privileges, is_alone=is_alone)
    if die_with_parent:
        end_with_parent()
    if mode != "off":
        missing |= _try(_LANDLOCK, apply_landlock, is_alone=is_alone)
        # It covers the other threads, too.
        missing |= _try(_SECCOMP, partial(apply_seccomp, threads=threads > 1), is_alone=True)
    if mode == "require" and missing:
        reasons = ", ".join(f"{name} ({reason})" for name, reason in missing.items())
        raise SandboxUnavailableError(f"The decoding process cannot be locked: {reasons}; set extract.sandbox to auto.")
    return tuple(missing)


def _try(name: str, build: Callable[[], None], *, is_alone: bool) -> dict[str, str]:
    """Apply a layer to this thread and those that it will start; return why the process lacks it, if it does."""
    try:
        build()
    except OSError as error:
        return {name: str(error.strerror)}
    return {} if is_alone else {name: "other threads already run"}


def _probe_landlock() -> Layer:
    try:
        return Layer(_LANDLOCK, True, describe_abi(landlock_abi()))
    except OSError as error:
        if error.errno in _REFUSED:
            advice = "allow landlock_create_ruleset and landlock_restrict_self in the container's seccomp profile"
            return Layer(_LANDLOCK, False, "the container refuses Landlock", advice)
        advice = "use Linux 5.13 or later with landlock among its security modules (boot option lsm=)"
        return Layer(_LANDLOCK, False, "the kernel has no Landlock, or it is disabled", advice)


def _probe_seccomp() -> Layer:
    if is_filter_available():
        return Layer(_SECCOMP, True, "a list of allowed system calls")
    if ARCHITECTURE not in ARCHITECTURES:
        detail = f"the system calls of {platform.machine()} are unknown"
        return Layer(_SECCOMP, False, detail, f"use a machine with {' or '.join(ARCHITECTURES)}")
    advice = "allow the system call seccomp in the container's seccomp profile"
    return Layer(_SECCOMP, False, "the kernel or the container refuses seccomp filters", advice)


def _is_single_threaded() -> bool:
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:  # without /proc, Python's own threads are all that can be counted
        return threading.active_count() == 1
