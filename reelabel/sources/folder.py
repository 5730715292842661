"""Objects that are files: `file:///folder/file` and plain paths."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import shutil
import stat
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from reelabel.errors import (
    ConfigurationError,
    ObjectMissingError,
    ReelabelError,
    StoreUnavailableError,
    VideoRefusedError,
)
from reelabel.sources.object_info import ObjectInfo, changed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO


def require_allowed_path(roots: Iterable[Path], path: Path) -> None:
    """Check that a file is below one of `roots`, with symlinks resolved; without roots, every file is allowed.

    Raises:
        VideoRefusedError: It is elsewhere.
    """
    folders = [root.resolve() for root in roots]
    if folders and not any(path.resolve().is_relative_to(folder) for folder in folders):
        raise VideoRefusedError(f"{path} is outside extract.allow_roots; move the video there, or add its folder.")


_SCHEME = "file://"
_UNFINISHED = ".unfinished"
_NOWHERE = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO})


class FileStore:
    """Reads and writes files with the guarantees of S3: atomic, write-once if asked, unchanged while read."""

    max_wait_s = math.inf  # the file system has no timeout

    @staticmethod
    def path(uri: str) -> Path:
        """Return the path of `uri`.

        Raises:
            ConfigurationError: A `file://` URI names a host or a relative path.
        """
        if not uri.startswith(_SCHEME):
            return Path(uri)
        path = Path(unquote(uri.removeprefix(_SCHEME)))
        if not path.is_absolute():
            raise ConfigurationError(f"{uri} is not an absolute path; write file:///folder/file, with three slashes.")
        return path

    def stat(self, uri: str) -> ObjectInfo:
        """Return the size and fingerprint of a file."""
        with self._open(uri) as file:
            return _describe(uri, os.fstat(file.fileno()))

    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes:
        """Read a whole file."""
        with self._open(uri) as file, _unchanged(file, uri, fingerprint=fingerprint, max_bytes=max_bytes):
            return file.read()

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Read a range of a file."""
        with self._open(uri) as file, _unchanged(file, uri, fingerprint=fingerprint, max_bytes=None):
            file.seek(start)
            return file.read(size)

    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int:
        """Copy a file to `path`."""
        with self._open(uri) as file, partial_file(path) as copy:
            with _unchanged(file, uri, fingerprint=fingerprint, max_bytes=max_bytes):
                shutil.copyfileobj(file, copy, 1 << 20)
            return copy.tell()

    def write_new(self, uri: str, data: bytes) -> bool:
        """Write a file unless it exists; return whether it was written."""
        path = self.path(uri)
        with _explained(uri), _temporary_file(path, data) as finished:
            try:
                # Linking is atomic and, unlike renaming, never replaces an existing file.
                path.hardlink_to(finished)
            except FileExistsError:
                return False
        return True

    def replace(self, uri: str, data: bytes) -> None:
        """Write a file, replacing an existing one."""
        path = self.path(uri)
        with _explained(uri), _temporary_file(path, data) as finished:
            finished.replace(path)

    def list(self, uri: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder."""
        root = self.path(uri)
        is_uri = uri.startswith(_SCHEME)
        with _explained(uri):
            for file in _files_below(root.absolute() if is_uri else root) if root.is_dir() else ():
                # Not a Path, whose parts are interned and would never be freed.
                name = _SCHEME + quote(os.fsencode(file.path)) if is_uri else file.path
                with contextlib.suppress(FileNotFoundError):  # removed in the meantime
                    yield _describe(name, file.stat())

    def remove(self, uri: str) -> None:
        """Remove a file."""
        with _explained(uri):
            self.path(uri).unlink(missing_ok=True)

    def ensure_root(self, uri: str) -> None:
        """Create the folder."""
        with _explained(uri):
            self.path(uri).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def _open(self, uri: str) -> Iterator[BinaryIO]:
        # Opening a pipe that has no writer would block forever.
        with _explained(uri), open(self.path(uri), "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ObjectMissingError(f"{uri} is not a regular file; check the path.")
            yield file


def _files_below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yield all files, sorted by path, holding the names of one folder per level in memory."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name + "/" * entry.is_dir()):
        if entry.is_dir():
            yield from _files_below(entry.path)
        elif entry.is_file() and not entry.name.endswith(_UNFINISHED):
            yield entry


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def partial_file(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing, and remove it if writing fails."""
    try:
        with path.open("wb") as file:
            yield file
    except BaseException:
        with contextlib.suppress(OSError):  # `path` may be an unnamed file, which cannot be unlinked
            path.unlink()
        raise


def _describe(uri: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(
        uri=uri,
        size_bytes=status.st_size,
        fingerprint=f"file:{status.st_size}:{status.st_mtime_ns}",
        modified=datetime.fromtimestamp(status.st_mtime, UTC),
    )


@contextmanager
def _unchanged(file: BinaryIO, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> Iterator[None]:
    before = _describe(uri, os.fstat(file.fileno()))
    before.require(fingerprint=fingerprint, max_bytes=max_bytes)
    yield
    if _describe(uri, os.fstat(file.fileno())) != before:
        raise changed(uri)


@contextmanager
def _temporary_file(path: Path, data: bytes) -> Iterator[Path]:
    """Write `data` to a temporary file next to `path`, and flush it to disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translated(error, uri) from error


def _translated(error: OSError, uri: str) -> ReelabelError:
    if error.errno in _NOWHERE:
        return ObjectMissingError(f"There is no file at {uri}; check the path.")
    if isinstance(error, PermissionError):
        return ConfigurationError(f"Permission denied for {uri}; change its permissions.")
    return StoreUnavailableError(f"Reading or writing {uri} failed: {error.strerror}.")
