"""Privileges and resource limits of a process, given up for good. See capabilities(7), prctl(2), setrlimit(2)."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
from contextlib import suppress
from itertools import count
from typing import Final

from reelabel.sandbox.kernel import capget, capset, prctl

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
    """Give up all capabilities and the means to regain them; root becomes nobody.

    Capabilities belong to threads: those of other threads that already run are unaffected.

    Raises:
        OSError: The kernel refuses it.
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
