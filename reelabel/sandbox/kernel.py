"""System calls that Python has no function for; see prctl(2), capset(2) and syscall(2)."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
# The architecture's column in `syscalls.NUMBERS`; empty where system calls are numbered in another way.
ARCHITECTURE: Final = platform.machine() if sys.maxsize > 2**32 else ""


def system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number; integers are passed as C longs.

    Raises:
        OSError: The kernel refuses it.
    """
    return _checked(_LIBC.syscall(ctypes.c_long(number), *map(_as_long, arguments)))


def prctl(option: int, *arguments: int) -> int:
    """Control this process; missing arguments are 0, which most options demand.

    Raises:
        OSError: The kernel refuses it.
    """
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _checked(_LIBC.prctl(option, *map(_as_long, padded)))


def capset(header: ctypes.Array[ctypes.c_uint32], sets: ctypes.Array[ctypes.c_uint32]) -> None:
    """Set the capabilities of the calling thread.

    Raises:
        OSError: The kernel refuses it.
    """
    _checked(_LIBC.capset(header, sets))


def capget(header: ctypes.Array[ctypes.c_uint32], sets: ctypes.Array[ctypes.c_uint32]) -> None:
    """Write the capabilities of the calling thread to `sets`.

    Raises:
        OSError: The kernel refuses it.
    """
    _checked(_LIBC.capget(header, sets))


def _as_long(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
