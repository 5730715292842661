"""Limits of the operating system that this process has reached: on its memory, its processes or its open files."""

from __future__ import annotations

import errno

_MEMORY = "out of memory; raise the limit (`ulimit -v` or the container's) or stop other programs"
_PROCESSES = "cannot start a thread or process; raise the limit (`ulimit -u`, `ulimit -v`)"
_BY_NUMBER = {
    errno.ENOMEM: _MEMORY,
    errno.EAGAIN: _PROCESSES,
    errno.EMFILE: "too many open files; raise the limit (`ulimit -n`)",
    errno.ENFILE: "too many open files on this machine; raise the limit (fs.file-max)",
}
# Of Python and the loader of shared libraries, which give no error number.
_BY_WORDS = {
    "can't start new thread": _PROCESSES,
    "can't allocate": _MEMORY,
    "cannot allocate memory": _MEMORY,
    "failed to map segment": _MEMORY,
}


def limit_reached(error: BaseException) -> str | None:
    """Return a clause on the limit that an error is due to, and how it is raised; None if there is none."""
    if isinstance(error, MemoryError):
        return _MEMORY
    if isinstance(error, OSError):
        return _BY_NUMBER.get(error.errno or 0)
    if isinstance(error, RuntimeError | ImportError):
        message = str(error).casefold()
        return next((clause for words, clause in _BY_WORDS.items() if words in message), None)
    return None
