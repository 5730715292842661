"""Limits of the operating system that this process has reached: on its memory, its processes or its open files."""

from __future__ import annotations

import errno

_MEMORY = (
    "no more memory can be had; raise the limit on it (`ulimit -v`, or the container's), or let other programs end"
)
_PROCESSES = (
    "no further thread or process can be started; raise the limit on them or on memory (`ulimit -u`, `ulimit -v`, or "
    "the container's)"
)
_BY_NUMBER = {
    errno.ENOMEM: _MEMORY,
    errno.EAGAIN: _PROCESSES,
    errno.EMFILE: "too many files are open; raise the limit on them (`ulimit -n`)",
    errno.ENFILE: "too many files are open on this machine; raise the limit on them (fs.file-max)",
}
# What Python and the loader of shared libraries say instead of an error number.
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
        said = str(error).casefold()
        return next((clause for words, clause in _BY_WORDS.items() if words in said), None)
    return None
