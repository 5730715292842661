"""Limits that a process can impose on itself: resources, capabilities(7), paths and networks (landlock(7)).

Landlock's rules and capabilities apply to the calling thread and those that it starts later, not to threads that
already run.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from contextlib import suppress
from itertools import count
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
# The architecture's column in `seccomp.NUMBERS`; empty where system calls are numbered in another way.
ARCHITECTURE: Final = platform.machine() if sys.maxsize > 2**32 else ""
# Constants from linux/prctl.h and linux/capability.h.
_SET_PDEATHSIG: Final = 1
_SET_DUMPABLE: Final = 4
_CAPBSET_DROP: Final = 24
_SET_NO_NEW_PRIVS: Final = 38
_CAP_AMBIENT: Final = 47
_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION_3: Final = 0x20080522
_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_NOBODY: Final = 65534
# landlock(7): the numbers are the same on all architectures; constants from linux/landlock.h.
_CREATE_RULESET: Final = 444
_RESTRICT_SELF: Final = 446
_RULESET_VERSION: Final = 1
# Versions of the interface (ABI), and the rights on files that exist since then, as a mask.
_FILES: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_FILES_ABI, _NETWORK_ABI, _SCOPE_ABI = 1, 4, 6


def limit_resources(*, memory_bytes: int, file_bytes: int, descriptors: int) -> None:
    """Limit the address space, the size of a file, and the number of descriptors; forbid core dumps."""
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: descriptors,
        resource.RLIMIT_CORE: 0,
    }
    for what, wanted in limits.items():
        _, hard = resource.getrlimit(what)
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(what, (limit, limit))


def drop_privileges() -> None:
    """Give up all capabilities and the means to regain them; root becomes nobody. OSError if the kernel refuses it.

    Capabilities belong to threads: those of other threads that already run are unaffected.
    """
    prctl(_SET_NO_NEW_PRIVS, 1)
    _drop_bounding_set()
    with suppress(OSError):  # before Linux 4.3, there is no ambient set
        prctl(_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL)
    _change_user()
    capset(_capability_header(), (ctypes.c_uint32 * 6)())
    prctl(_SET_DUMPABLE, 0)  # other processes of the same user can neither trace it nor read its memory


def end_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends; a change of user would cancel it."""
    prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _drop_bounding_set() -> None:
    for capability in count():
        try:
            prctl(_CAPBSET_DROP, capability)
        except OSError as error:
            # EINVAL: that was the last one. EPERM: without CAP_SETPCAP, no_new_privs has to do.
            if error.errno in {errno.EINVAL, errno.EPERM}:
                return
            raise


def _change_user() -> None:
    """Become nobody, if allowed, and if the parent can still kill a process of another user."""
    user, group = os.geteuid(), os.getegid()
    if user == 0 and _has_capabilities(_CAP_KILL, _CAP_SETGID, _CAP_SETUID):
        with suppress(OSError):  # a user namespace may forbid it
            os.setgroups([])
        user = group = _NOBODY
    with suppress(OSError):  # nobody may have no number in a user namespace; root without capabilities is left
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)


def _has_capabilities(*capabilities: int) -> bool:
    sets = (ctypes.c_uint32 * 6)()
    capget(_capability_header(), sets)
    effective = sets[0]
    return all(effective >> capability & 1 for capability in capabilities)


def _capability_header() -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)


def landlock_abi() -> int:
    """Return the version of the kernel's interface, at least 1; raise OSError if it has none that may be used."""
    return system_call(_CREATE_RULESET, None, 0, _RULESET_VERSION)


def describe_abi(abi: int) -> str:
    """Return what a version of the interface can deny."""
    return f"Landlock ABI {abi} ({', '.join(_rights(abi))})"


def apply_landlock() -> None:
    """Deny all that Landlock can deny here, or raise OSError; open descriptors keep working."""
    handled = _rights(landlock_abi()).values()
    # struct landlock_ruleset_attr has grown with the ABI. Whatever is handled and has no rule is denied.
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    ruleset = system_call(_CREATE_RULESET, ctypes.c_char_p(attributes), len(attributes), 0)
    try:
        system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _rights(abi: int) -> dict[str, int]:
    """Return the rights that exist in a version of the interface, as masks, in the order of the ruleset's fields."""
    files = _FILES[max(known for known in _FILES if known <= abi)]
    since = {_FILES_ABI: ("files", files), _NETWORK_ABI: ("TCP", 0b11), _SCOPE_ABI: ("abstract sockets, signals", 0b11)}
    return dict(right for known, right in since.items() if known <= abi)


def system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number; integers are passed as C longs; OSError if the kernel refuses it."""
    return _checked(_LIBC.syscall(ctypes.c_long(number), *map(_as_long, arguments)))


def prctl(option: int, *arguments: int) -> int:
    """Control this process; missing arguments are 0, as most options demand; OSError if the kernel refuses it."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _checked(_LIBC.prctl(option, *map(_as_long, padded)))


def capset(header: ctypes.Array[ctypes.c_uint32], sets: ctypes.Array[ctypes.c_uint32]) -> None:
    """Set the capabilities of the calling thread; raise OSError if the kernel refuses it."""
    _checked(_LIBC.capset(header, sets))


def capget(header: ctypes.Array[ctypes.c_uint32], sets: ctypes.Array[ctypes.c_uint32]) -> None:
    """Write the capabilities of the calling thread to `sets`; raise OSError if the kernel refuses it."""
    _checked(_LIBC.capget(header, sets))


def _as_long(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
