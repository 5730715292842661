"""Objects that are files: `file:///folder/file` and plain paths."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from reelabel.disk import full_disk, is_full
from reelabel.errors import (
    ConfigurationError,
    ObjectMissingError,
    ObjectRefusedError,
    StoreUnavailableError,
    VideoRefusedError,
)
from reelabel.sources.object_info import ObjectInfo, changed, unescape_name
from reelabel.sources.source import Source
from reelabel.sources.video_file import OPEN_FLAGS, VideoFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_SCHEME = "file://"
_UNFINISHED = ".unfinished"
_FOLDER_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOWHERE = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO})


class FileStore:
    """Opens and writes files with the guarantees of S3: atomic, write-once if asked."""

    def __init__(self, roots: Iterable[Path] = ()) -> None:
        """Take the folders in which files that are read must lie, with symlinks resolved; empty allows every folder."""
        self._roots = tuple(roots)

    @staticmethod
    def path(uri: str) -> Path:
        """Return the path of `uri`; raise ConfigurationError if a `file://` URI names a host or a relative path."""
        if not uri.startswith(_SCHEME):
            return Path(unescape_name(uri))
        path = Path(unquote(uri.removeprefix(_SCHEME), errors="surrogateescape"))  # `list` quotes bytes
        if not path.is_absolute():
            raise ConfigurationError(f"{uri} is not an absolute path; write file:///folder/file, with three slashes.")
        return path

    def write_new(self, uri: str, data: bytes) -> bool:
        path = self.path(uri)
        with _converted_errors(uri), _temporary_file(path, data) as finished:
            try:
                # Linking is atomic and, unlike renaming, never replaces an existing file.
                path.hardlink_to(finished)
            except FileExistsError:
                return False
        return True

    def replace(self, uri: str, data: bytes) -> None:
        path = self.path(uri)
        with _converted_errors(uri), _temporary_file(path, data) as finished:
            finished.replace(path)

    def list(self, uri: str) -> Iterator[ObjectInfo]:
        root = self.path(uri)
        is_uri = uri.startswith(_SCHEME)
        with _converted_errors(uri):
            for file in _files_below(root.absolute() if is_uri else root) if root.is_dir() else ():
                # Not a Path, whose parts are interned and would never be freed.
                name = _SCHEME + quote(os.fsencode(file.path)) if is_uri else file.path
                with contextlib.suppress(FileNotFoundError):  # removed in the meantime
                    yield _describe(name, file.stat())

    def remove(self, uri: str) -> None:
        with _converted_errors(uri):
            self.path(uri).unlink(missing_ok=True)

    def ensure_root(self, uri: str) -> None:
        with _converted_errors(uri):
            self.path(uri).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def open(self, uri: str) -> Iterator[FileSource]:
        """Open a file for the duration of a `with` block.

        Raises VideoRefusedError if it lies in none of the allowed folders, and ObjectMissingError if it is no regular
        file.
        """
        path = self.path(uri)
        with _converted_errors(uri):
            descriptor = _open_below(self._roots, path) if self._roots else os.open(path, OPEN_FLAGS)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise ObjectMissingError(f"{uri} is not a regular file; check the path.")
            yield FileSource(_describe(uri, found), descriptor)
        finally:
            os.close(descriptor)


class FileSource(Source):
    """An open regular file, even if its path names another by now."""

    def __init__(self, info: ObjectInfo, descriptor: int) -> None:
        super().__init__(info)
        self.descriptor = descriptor

    def read(self, start: int, size: int) -> bytes:
        with _converted_errors(self.info.uri):
            return os.pread(self.descriptor, size, start)

    def as_video(self) -> VideoFile:
        return VideoFile(self.descriptor, self.size_bytes, Path(self.info.uri).suffix)

    def check_unchanged(self) -> None:
        if _describe(self.info.uri, os.fstat(self.descriptor)) != self.info:
            raise changed(self.info.uri)


def _describe(uri: str, found: os.stat_result) -> ObjectInfo:
    return ObjectInfo(
        uri=uri,
        size_bytes=found.st_size,
        fingerprint=f"file:{found.st_size}:{found.st_mtime_ns}",
        modified=datetime.fromtimestamp(found.st_mtime, UTC),
    )


def _open_below(roots: Sequence[Path], path: Path) -> int:
    """Open a file below one of `roots`.

    Links are resolved first, and the resolved path is then opened folder by folder, from the root on, following no
    link: a folder or link that is replaced meanwhile makes this fail, but never leads outside.
    """
    resolved = Path(os.path.realpath(path))
    for root in map(os.path.realpath, roots):
        if resolved.is_relative_to(root):
            return _walk(root, resolved.relative_to(root).parts)
    raise VideoRefusedError(f"{path} is outside extract.allow_roots; move it there, or add its folder.")


def _walk(root: str, parts: Sequence[str]) -> int:
    at = os.open(root, _FOLDER_FLAGS)
    try:
        for folder in parts[:-1]:
            below = os.open(folder, _FOLDER_FLAGS, dir_fd=at)
            os.close(at)
            at = below
        return os.open(parts[-1] if parts else ".", OPEN_FLAGS | os.O_NOFOLLOW, dir_fd=at)
    finally:
        os.close(at)


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
def _temporary_file(path: Path, data: bytes) -> Iterator[Path]:
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
def _converted_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if is_full(error) and (full := full_disk([FileStore.path(uri).parent], error)):
            raise full from error
        if error.errno in _NOWHERE:
            raise ObjectMissingError(f"There is no file at {uri}; check the path.") from error
        if isinstance(error, PermissionError):
            raise ObjectRefusedError(f"Permission denied for {uri}; change its permissions.") from error
        raise StoreUnavailableError(f"Reading or writing {uri} failed: {error.strerror}.") from error
