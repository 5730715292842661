"""One version of an object as a source of bytes, wherever it is."""

from __future__ import annotations

import math
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Protocol

from reelabel.errors import ObjectRefusedError, StoreUnavailableError, VideoRefusedError, VideoUnavailableError
from reelabel.sources.object_info import ObjectInfo, changed, is_read_by_fsspec, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_PIECE_BYTES = 8 * 1024**2


class Source:
    """One version of an object; also a `reelabel.sources.sparse_file.ByteSource`. Thread-safe."""

    info: ObjectInfo
    max_wait_s: float = math.inf

    def __init__(self, info: ObjectInfo) -> None:
        self.info = info

    @property
    def size_bytes(self) -> int:
        return self.info.size_bytes

    def read(self, start: int, size: int) -> bytes:
        """Read `size` bytes from `start`, fewer at the end; raise RangesIgnoredError if only the whole can be read."""
        raise NotImplementedError

    def pieces(self) -> Iterator[bytes]:
        return pieces_of(self, 0, self.size_bytes)

    def copy_to(self, path: Path, *, max_bytes: int | None = None) -> int:
        """Copy it to a file, which is removed on failure; return its size.

        Raises ObjectError if it has changed, or is larger than `max_bytes`.
        """
        self.info.require(fingerprint=None, max_bytes=max_bytes)
        with partial_file(path) as file:
            for piece in self.pieces():
                file.write(piece)
            self.check_unchanged()
            return file.tell()

    def check_unchanged(self) -> None:
        """Raise ObjectChangedError if it is not the version that was opened, unless each read has checked that."""


class Objects(Protocol):
    """The part of an `ObjectStore` by which sources read."""

    def stat(self, uri: str) -> ObjectInfo: ...
    def max_wait_s(self, uri: str) -> float: ...
    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes: ...
    def download(
        self, uri: str, path: Path, *, fingerprint: str | None = None, max_bytes: int | None = None
    ) -> int: ...


class StoredSource(Source):
    """An object on a server; every method raises as `faults_of_one_object` does."""

    def __init__(self, objects: Objects, info: ObjectInfo) -> None:
        super().__init__(info)
        self.objects = objects
        self.max_wait_s = objects.max_wait_s(info.uri)

    def read(self, start: int, size: int) -> bytes:
        uri, fingerprint = self.info.uri, self.info.fingerprint
        with faults_of_one_object(uri):
            return self.objects.read_range(uri, start=start, size=size, fingerprint=fingerprint)

    def copy_to(self, path: Path, *, max_bytes: int | None = None) -> int:
        uri, fingerprint = self.info.uri, self.info.fingerprint
        with faults_of_one_object(uri):
            return self.objects.download(uri, path, fingerprint=fingerprint, max_bytes=max_bytes)

    def check_unchanged(self) -> None:
        """Look it up again, unless each read has checked the version."""
        if is_read_by_fsspec(self.info.uri):
            with faults_of_one_object(self.info.uri):
                self.objects.stat(self.info.uri).require(fingerprint=self.info.fingerprint, max_bytes=None)


@contextmanager
def faults_of_one_object(uri: str) -> Iterator[None]:
    """Make errors of a store about one video fail only that video: the store may still serve others, and the cache.

    Raises VideoRefusedError if access is denied, and VideoUnavailableError if a server other than S3 is unavailable: an
    outage of S3 concerns all videos.
    """
    try:
        yield
    except ObjectRefusedError as error:
        raise VideoRefusedError(error.message) from None
    except StoreUnavailableError as error:
        if scheme_of(uri) != "s3":
            raise VideoUnavailableError(error.message) from None
        raise


class BytesSource(Source):
    def __init__(self, info: ObjectInfo, data: bytes) -> None:
        super().__init__(info)
        self._data = data

    def read(self, start: int, size: int) -> bytes:
        return self._data[start : start + size]


def pieces_of(source: Source, start: int, size: int) -> Iterator[bytes]:
    """Yield a range of a source in pieces; raise ObjectChangedError if it has become shorter."""
    for at in range(start, start + size, _PIECE_BYTES):
        wanted = min(_PIECE_BYTES, start + size - at)
        piece = source.read(at, wanted)
        if len(piece) != wanted:
            raise changed(source.info.uri)
        yield piece


@contextmanager
def partial_file(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing, and remove it if writing fails."""
    try:
        with path.open("wb") as file:
            yield file
    except BaseException:
        with suppress(OSError):  # `path` may be an unnamed file, which cannot be unlinked
            path.unlink()
        raise
