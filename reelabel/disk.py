"""Full disks: whether something failed for lack of space, and in which folder."""

from __future__ import annotations

import errno
import math
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reelabel.errors import DiskFullError, ReelabelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
# In messages of libraries that give no error number. Python's tempfile tries several folders before it gives up.
_SIGNS = ("no space left on device", "disk quota exceeded", "no usable temporary directory")
_LEAST_FREE_BYTES = 1024**2  # a disk with less is full, even if no error shows that a write has failed


def is_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, is about a full disk."""
    while error is not None:
        # An error of the system also quotes a file name, which may be any text.
        text = error.strerror if isinstance(error, OSError) and error.errno is not None else str(error)
        if getattr(error, "errno", None) in _ERRNOS or any(sign in (text or "").lower() for sign in _SIGNS):
            return True
        error = error.__cause__ or error.__context__
    return False


def temporary_root() -> Path:
    """Return the folder of temporary files, even if nothing can be written there."""
    return Path(os.environ.get("TMPDIR") or tempfile.tempdir or "/tmp")  # noqa: S108 - Python's own default


def full_disk(folders: Iterable[Path], error: BaseException | None = None) -> DiskFullError | None:
    """Return the error to raise if a disk is full that one of `folders`, or of its parents, is on; None if none is.

    `error` is what the component that writes there failed with: if that is about a full disk, one of them is.
    """
    if isinstance(error, OSError) and error.errno in _ERRNOS and isinstance(error.filename, str):
        folders = [Path(error.filename).parent]
    free_bytes, fullest = min(map(_free_bytes, folders), default=(math.inf, None))
    if fullest is None or not (is_full(error) or free_bytes < _LEAST_FREE_BYTES):
        return None
    fault = "is full; free space" if _has_inodes(os.statvfs(fullest)) else "has no free inodes; remove files"
    return DiskFullError(f"The disk of {fullest} {fault}, then run the same command again.")


def _free_bytes(folder: Path) -> tuple[float, Path]:
    for existing in (folder.absolute(), *folder.absolute().parents):
        with suppress(OSError):  # it does not exist yet
            found = os.statvfs(existing)
            break
    is_disk = found.f_blocks and not found.f_flag & os.ST_RDONLY  # not a terminal, a pipe or a read-only image
    return (found.f_bavail * found.f_frsize * _has_inodes(found) if is_disk else math.inf), existing


def _has_inodes(disk: os.statvfs_result) -> bool:
    return not disk.f_files or disk.f_favail > 0  # some file systems have no fixed number of inodes


def disk_full_error(folders: Iterable[Path]) -> DiskFullError:
    """Return the error for a write that failed because a disk was full, which one of the folders is on."""
    found = full_disk(folders, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert found is not None
    return found


@contextmanager
def disk_errors(*folders: Path) -> Iterator[None]:
    """Convert errors about a full disk, of any library, to a DiskFullError that names the folder being written to."""
    try:
        yield
    except ReelabelError:
        raise
    except Exception as error:
        full = full_disk(folders, error) if is_full(error) else None
        if full is None:
            raise
        raise full from error
