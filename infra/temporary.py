"""Temporary folders and shared memory, and removing those of processes that were killed."""

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

# POSIX shared memory; files in it are their user's alone, and have names that nobody guesses.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
_KINDS = ("jobs", "manifest")


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Have an empty folder, locked as long as this process uses it: the kernel frees the lock of whoever dies.

    Args:
        kind: What it holds, for its name: `jobs` or `manifest`.
    """
    assert kind in _KINDS
    with TemporaryDirectory(prefix=f"reelabel-{kind}-") as name:
        lock = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield Path(name)
        finally:
            os.close(lock)


def remove_left_folders(*, older_than_s: float, dry_run: bool = False) -> int:
    """Remove this user's temporary folders that nobody holds any more, on this machine; gives how many.

    Args:
        older_than_s: Seconds since the last change in a folder, below which it stays.
        dry_run: Count only.
    """
    before_s = time.time() - older_than_s
    folders = [folder for kind in _KINDS for folder in Path(gettempdir()).glob(f"reelabel-{kind}-*")]
    left = [folder for folder in folders if _is_left(folder, before_s)]
    for folder in left if not dry_run else []:
        shutil.rmtree(folder, ignore_errors=True)  # another sweep may be at it
    return len(left)


def shared_name() -> str:
    """Make up the name of a file in shared memory."""
    return f"reelabel-{os.getpid()}-{secrets.token_hex(8)}"


def remove_left_memory(*, older_than_s: float, dry_run: bool = False) -> int:
    """Remove this user's files in shared memory that nobody came for, on this machine; gives how many.

    Who receives one takes its name away within moments. Python's resource tracker does so for a process that was
    killed, unless it was killed with it.

    Args:
        older_than_s: Seconds since it was written, below which it stays.
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
    except OSError:  # gone meanwhile
        return False
    return stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid() and facts.st_mtime < before_s


def _is_left(folder: Path, before_s: float) -> bool:
    """Whether a folder is ours, old, and held by no process."""
    try:
        facts = folder.lstat()
        if facts.st_uid != os.getuid() or facts.st_mtime >= before_s:
            return False
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # gone meanwhile, or no folder
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True
