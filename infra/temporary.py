"""Temporary folders, and cleaning up after processes that were killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING

from reelabel.disk import disk_errors, temporary_root

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS = ("jobs", "manifest", "engine", "video", "bank", "upload")
_PREFIXES = tuple(f"reelabel-{kind}-" for kind in _KINDS)


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Yield an empty folder that is locked while in use; the kernel releases the lock if the process dies.

    Raises:
        DiskFullError: There is no space for the folder, or for what the body writes to it.
    """
    assert kind in _KINDS
    with disk_errors(temporary_root()), TemporaryDirectory(prefix=f"reelabel-{kind}-") as name:
        lock = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            with disk_errors(Path(name)):
                yield Path(name)
        finally:
            os.close(lock)


def remove_stale_folders(*, older_than_s: float = 10.0, dry_run: bool = False) -> int:
    """Remove this user's temporary folders on this machine that no process has locked, and return their number.

    Those changed in the last `older_than_s` seconds stay: they may be about to be locked.
    """
    before_s = time.time() - older_than_s
    with os.scandir(gettempdir()) as entries:
        found = [Path(entry.path) for entry in entries if entry.name.startswith(_PREFIXES)]
    stale = [folder for folder in found if _is_stale(folder, before_s)]
    for folder in stale if not dry_run else []:
        shutil.rmtree(folder, ignore_errors=True)  # another process may be removing it, too
    return len(stale)


def _is_stale(folder: Path, before_s: float) -> bool:
    try:
        facts = folder.lstat()
        if facts.st_uid != os.getuid() or facts.st_mtime >= before_s:
            return False
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # removed in the meantime, or not a folder
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is locked, or on a file system without locks
        return False
    finally:
        os.close(handle)
    return True
