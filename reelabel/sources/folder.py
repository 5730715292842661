"""Objects that are files: `file:///folder/file` and plain paths."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from reelabel.disk import full_disk, is_full
from reelabel.errors import (
    ConfigurationError,
    ObjectMissingError,
    ObjectRefusedError,
    ReelabelError,
    StoreUnavailableError,
)
from reelabel.sources.archives.member_uri import unescape_name
from reelabel.sources.video_file import LocalFile, describe, open_local

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from reelabel.sources.object_info import ObjectInfo


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
            return Path(unescape_name(uri))
        path = Path(unquote(uri.removeprefix(_SCHEME), errors="surrogateescape"))  # as `list` has quoted its bytes
        if not path.is_absolute():
            raise ConfigurationError(f"{uri} is not an absolute path; write file:///folder/file, with three slashes.")
        return path

    def stat(self, uri: str) -> ObjectInfo:
        """Return the size and fingerprint of a file."""
        with self.open(uri) as file:
            return file.info

    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes:
        """Read a whole file."""
        with (
            self.open(uri) as file,
            _unchanged(file, fingerprint=fingerprint, max_bytes=max_bytes),
            open(file.descriptor, "rb", closefd=False) as stream,
        ):
            return stream.read()

    def find(self, uri: str) -> bytes | None:
        """Read a whole file; return None if there is none."""
        try:
            return self.read(uri, fingerprint=None, max_bytes=None)
        except ObjectMissingError:
            return None

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Read a range of a file."""
        with self.open(uri) as file, _unchanged(file, fingerprint=fingerprint, max_bytes=None):
            return file.read(start, size)

    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int:
        """Copy a file to `path`."""
        with self.open(uri) as file, partial_file(path) as copy:
            with (
                _unchanged(file, fingerprint=fingerprint, max_bytes=max_bytes),
                open(file.descriptor, "rb", closefd=False) as stream,
            ):
                shutil.copyfileobj(stream, copy, 1 << 20)
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
                    yield describe(name, file.stat())

    def remove(self, uri: str) -> None:
        """Remove a file."""
        with _explained(uri):
            self.path(uri).unlink(missing_ok=True)

    def ensure_root(self, uri: str) -> None:
        """Create the folder."""
        with _explained(uri):
            self.path(uri).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def open(self, uri: str, roots: Sequence[Path] = ()) -> Iterator[LocalFile]:
        """Open a file for the duration of a `with` block; see `open_local`."""
        with _explained(uri), open_local(uri, self.path(uri), roots) as file:
            yield file


def _files_below(folder: Path | str, above: tuple[os.stat_result, ...] = ()) -> Iterator[os.DirEntry[str]]:
    """Yield all files, sorted by path, holding the names of one folder per level in memory.

    Links that lead nowhere, or back to a folder above, are left out.
    """
    above = (*above, os.stat(folder))  # noqa: PTH116 - not a Path, as above
    entries = [entry for entry in os.scandir(folder) if _exists(entry)]
    for entry in sorted(entries, key=lambda entry: entry.name + "/" * entry.is_dir()):
        if entry.is_dir():
            if not any(os.path.samestat(entry.stat(), each) for each in above):
                yield from _files_below(entry.path, above)
        elif entry.is_file() and not entry.name.endswith(_UNFINISHED):
            yield entry


def _exists(entry: os.DirEntry[str]) -> bool:
    return not entry.is_symlink() or os.path.exists(entry.path)  # noqa: PTH110 - not a Path, as above


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


@contextmanager
def _unchanged(file: LocalFile, *, fingerprint: str | None, max_bytes: int | None) -> Iterator[None]:
    file.info.require(fingerprint=fingerprint, max_bytes=max_bytes)
    yield
    file.require_unchanged()


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
    if is_full(error) and (full := full_disk([FileStore.path(uri).parent], error)):
        return full
    if error.errno in _NOWHERE:
        return ObjectMissingError(f"There is no file at {uri}; check the path.")
    if isinstance(error, PermissionError):
        return ObjectRefusedError(f"Permission denied for {uri}; change its permissions.")
    return StoreUnavailableError(f"Reading or writing {uri} failed: {error.strerror}.")
