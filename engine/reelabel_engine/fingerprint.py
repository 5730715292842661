"""A hash of the files in a model's folder; digests of large ones are cached."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_WHOLE_FILE_BYTES = 64 * 1024**2  # digests of larger files are cached
_READERS = 8  # of large files, at once
_HEX_DIGITS = 64  # of a digest


def fingerprint_folder(folder: Path) -> str:
    """Hash the files in a model folder.

    Hidden files and folders are not part of the model: tools keep metadata there.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and _is_model_file(path.relative_to(folder)))
    large = [path for path in files if path.stat().st_size > _WHOLE_FILE_BYTES]
    digests = dict(zip(large, _digest_files(large), strict=True))
    digest = hashlib.sha256()
    for path in files:
        name = str(path.relative_to(folder)).encode(errors="surrogateescape")  # any bytes but NUL
        digest.update(name + f"\0{path.stat().st_size}\0".encode())
        digest.update(digests[path].encode() if path in digests else path.read_bytes())
    return digest.hexdigest()[:16]


def _is_model_file(path: Path) -> bool:
    return not any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _digest_files(paths: Sequence[Path]) -> list[str]:
    """Return the SHA-256 of each file's content, in hex.

    They are cached by path, device, inode, size and times of change. Where nothing can be cached, every call reads all
    files.
    """
    with ThreadPoolExecutor(_READERS) as threads:
        return list(threads.map(_digest, paths))


def _digest(path: Path) -> str:
    cached = _digest_path(path)
    with suppress(OSError):
        digest = cached.read_text(encoding="ascii", errors="replace")
        if len(digest) == _HEX_DIGITS and digest.isalnum():
            return digest
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if _digest_path(path) == cached:  # otherwise it was written meanwhile
        with suppress(OSError):  # a disk that is full, or no home
            cached.parent.mkdir(parents=True, exist_ok=True)
            cached.write_text(digest, encoding="ascii")  # a concurrent reader finds too few digits
    return digest


def _digest_path(path: Path) -> Path:
    status = path.stat()
    seen = (path.resolve(), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - may have no home
    return caches / "reelabel" / "digests" / hashlib.sha256(repr(seen).encode()).hexdigest()
