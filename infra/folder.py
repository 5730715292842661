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

from infra.errors import ConfigurationError, ObjectMissingError, ReelabelError, StoreUnavailableError
from infra.object_info import ObjectInfo, changed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_SCHEME = "file://"
_UNFINISHED = ".unfinished"
_NOWHERE = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO})


class Folder:
    """Reads and writes files with the same promises as S3: whole, write-once, unchanged while read."""

    patience_s = math.inf  # the kernel's

    @staticmethod
    def path(uri: str) -> Path:
        """Name the file of `uri`.

        Raises:
            ConfigurationError: A `file://` URI names a host or a relative path.
        """
        if not uri.startswith(_SCHEME):
            return Path(uri)
        path = Path(unquote(uri.removeprefix(_SCHEME)))
        if not path.is_absolute():
            raise ConfigurationError(f"{uri} names no absolute path; write file:///folder/file, with three slashes.")
        return path

    def stat(self, uri: str) -> ObjectInfo:
        """Look at one file."""
        with self._open(uri) as file:
            return _describe(uri, os.fstat(file.fileno()))

    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes:
        """Read one file whole."""
        with self._open(uri) as file, _unchanged(file, uri, fingerprint=fingerprint, max_bytes=max_bytes):
            return file.read()

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Read a part of one file."""
        with self._open(uri) as file, _unchanged(file, uri, fingerprint=fingerprint, max_bytes=None):
            file.seek(start)
            return file.read(size)

    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int:
        """Copy one file to `path`."""
        with self._open(uri) as file, partial_file(path) as copy:
            with _unchanged(file, uri, fingerprint=fingerprint, max_bytes=max_bytes):
                shutil.copyfileobj(file, copy, 1 << 20)
            return copy.tell()

    def write_new(self, uri: str, data: bytes) -> bool:
        """Write a file unless one stands there."""
        path = self.path(uri)
        with _explained(uri), _written_beside(path, data) as finished:
            try:
                # A link appears whole or not at all and, unlike a rename, never takes another's place.
                path.hardlink_to(finished)
            except FileExistsError:
                return False
        return True

    def replace(self, uri: str, data: bytes) -> None:
        """Write a file, whatever stands there."""
        path = self.path(uri)
        with _explained(uri), _written_beside(path, data) as finished:
            finished.replace(path)

    def list(self, uri: str) -> Iterator[ObjectInfo]:
        """Walk through all files below a folder."""
        root = self.path(uri)
        is_uri = uri.startswith(_SCHEME)
        with _explained(uri):
            for file in _files_below(root.absolute() if is_uri else root) if root.is_dir() else ():
                # No Path: the interpreter keeps every part of every one in a table that grows with them.
                name = _SCHEME + quote(os.fsencode(file.path)) if is_uri else file.path
                with contextlib.suppress(FileNotFoundError):  # removed since: no longer part of the list
                    yield _describe(name, file.stat())

    def remove(self, uri: str) -> None:
        """Remove one file."""
        with _explained(uri):
            self.path(uri).unlink(missing_ok=True)

    def ensure_root(self, uri: str) -> None:
        """Make the folder."""
        with _explained(uri):
            self.path(uri).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def _open(self, uri: str) -> Iterator[BinaryIO]:
        # Opening a pipe without a writer would wait for ever.
        with _explained(uri), open(self.path(uri), "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ObjectMissingError(f"{uri} is no regular file; check the path.")
            yield file


def _files_below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Walk through all files, one folder's names in memory at a time, in the order of whole paths."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name + "/" * entry.is_dir()):
        if entry.is_dir():
            yield from _files_below(entry.path)
        elif entry.is_file() and not entry.name.endswith(_UNFINISHED):
            yield entry


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def partial_file(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing, and remove it unless the writing ends well."""
    try:
        with path.open("wb") as file:
            yield file
    except BaseException:
        with contextlib.suppress(OSError):  # also of a file that has no name, and goes with its last reader
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
def _written_beside(path: Path, data: bytes) -> Iterator[Path]:
    """Write `data` to a file of its own next to `path`, on disk before anything points to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield beside
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translated(error, uri) from error


def _translated(error: OSError, uri: str) -> ReelabelError:
    if error.errno in _NOWHERE:
        return ObjectMissingError(f"No file stands at {uri}; check the path.")
    if isinstance(error, PermissionError):
        return ConfigurationError(f"{uri} may not be read or written by this user; change its permissions.")
    return StoreUnavailableError(f"{uri} cannot be read or written now: {error.strerror}.")
