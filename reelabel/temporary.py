"""Temporary folders and shared memory, and cleaning up after processes that were killed."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# POSIX shared memory; files in it are private to their user, and have unpredictable names.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
_KINDS = ("jobs", "manifest")


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Yield an empty folder that is locked while in use; the kernel releases the lock if the process dies.

    Args:
        kind: Its content, which becomes part of its name: `jobs` or `manifest`.
    """
    assert kind in _KINDS
    with TemporaryDirectory(prefix=f"reelabel-{kind}-") as name:
        lock = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield Path(name)
        finally:
            os.close(lock)


def remove_stale_folders(*, older_than_s: float, dry_run: bool = False) -> int:
    """Remove this user's unlocked temporary folders on this machine, and return their number.

    Args:
        older_than_s: Keep folders changed less than this many seconds ago.
        dry_run: Count only.
    """
    before_s = time.time() - older_than_s
    folders = [folder for kind in _KINDS for folder in Path(gettempdir()).glob(f"reelabel-{kind}-*")]
    left = [folder for folder in folders if _is_left(folder, before_s)]
    for folder in left if not dry_run else []:
        shutil.rmtree(folder, ignore_errors=True)  # another process may be removing it, too
    return len(left)


def new_shared_memory_name() -> str:
    """Return a new name for a file in shared memory."""
    return f"reelabel-{os.getpid()}-{secrets.token_hex(8)}"


def remove_stale_shared_memory(*, older_than_s: float, dry_run: bool = False) -> int:
    """Remove this user's abandoned files in shared memory on this machine, and return their number.

    The receiver of a file unlinks it at once. If a process is killed, Python's resource tracker unlinks its files,
    unless the tracker is killed as well.

    Args:
        older_than_s: Keep files written less than this many seconds ago.
        dry_run: Count only.
    """
    before_s = time.time() - older_than_s
    left = [file for file in SHARED_MEMORY.glob("reelabel-*-*") if _is_old_file(file, before_s)]
    for file in left if not dry_run else []:
        file.unlink(missing_ok=True)
    return len(left)


def _is_old_file(path: Path, before_s: float) -> bool:
    try:
        facts = path.lstat()
    except OSError:  # removed in the meantime
        return False
    return stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid() and facts.st_mtime < before_s


def _is_left(folder: Path, before_s: float) -> bool:
    """Return whether a folder belongs to this user, is old, and is not locked."""
    try:
        facts = folder.lstat()
        if facts.st_uid != os.getuid() or facts.st_mtime >= before_s:
            return False
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # removed in the meantime, or not a folder
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True
