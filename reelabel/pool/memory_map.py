"""Private maps of memory files, without an open descriptor for each."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_ssize_t)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class _Map:
    """A part of the address space, for as long as an array uses it."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__array_interface__ = {"shape": (size_bytes,), "typestr": "|u1", "data": (address, False), "version": 3}
        weakref.finalize(self, _LIBC.munmap, address, size_bytes).atexit = False


def map_privately(descriptor: int, size_bytes: int) -> npt.NDArray[np.uint8]:
    """Map a file, until the last array that uses its bytes is gone; what is written to them stays in this process.

    `mmap.mmap` would keep a descriptor open for as long: whoever keeps the frames of a thousand videos could open no
    other file.

    Returns:
        Its bytes, shape (size_bytes,).

    Raises:
        OSError: The kernel refuses.
    """
    address = _LIBC.mmap(None, size_bytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, descriptor, 0)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return np.asarray(_Map(address, size_bytes))
