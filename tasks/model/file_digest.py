"""Digests of large files, each read once: they are kept among the user's caches."""

from __future__ import annotations

import hashlib
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_READERS = 8
_HEX_DIGITS = 64


def digest_files(paths: Sequence[Path]) -> list[str]:
    """Return the SHA-256 of each file's content, in hex.

    A digest is kept by the file's path, device, inode, size and times of change, and read again once one of them
    differs. Where nothing can be kept, every call reads all files.

    Raises:
        OSError: A file cannot be read.
    """
    with ThreadPoolExecutor(_READERS) as threads:
        return list(threads.map(_digest, paths))


def _digest(path: Path) -> str:
    kept = _place(path)
    with suppress(OSError):
        digest = kept.read_text(encoding="ascii", errors="replace")
        if len(digest) == _HEX_DIGITS and digest.isalnum():
            return digest
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if _place(path) == kept:  # else it was written meanwhile
        with suppress(OSError):  # a disk that is full, or no home
            _write(kept, digest)
    return digest


def _place(path: Path) -> Path:
    status = path.stat()
    seen = (path.resolve(), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - may have no home
    return caches / "reelabel" / "digests" / hashlib.sha256(repr(seen).encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
