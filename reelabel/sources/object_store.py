"""One interface to objects of all kinds: `s3://`, `file://` and paths, and read-only `http(s)://` and `data:`.

A member of an archive (`s3://bucket/shard.tar#clip.mp4`) is read as an object of its own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import unquote_to_bytes

from reelabel.errors import ConfigurationError, InternalError, ObjectError, RangesIgnoredError, VideoRefusedError
from reelabel.optional import require
from reelabel.sources.archives.archives import Archives
from reelabel.sources.archives.member_uri import split_member
from reelabel.sources.cancel import Cancellation
from reelabel.sources.folder import FileStore, partial_file
from reelabel.sources.object_info import INLINE_SCHEME, WEB_SCHEMES, ObjectInfo, redact_uri, scheme_of, too_large
from reelabel.sources.options import S3Options, WebOptions
from reelabel.unexpected import failing_alone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from reelabel.sources.archives.members import ArchiveMember, MemberIndex
    from reelabel.sources.archives.saved_indexes import IndexStore
    from reelabel.sources.s3 import S3
    from reelabel.sources.video_file import LocalFile
    from reelabel.sources.web import Web


__all__ = ["ObjectInfo", "ObjectStore"]


class _Readable(Protocol):
    def stat(self, uri: str) -> ObjectInfo: ...
    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes: ...
    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes: ...
    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int: ...


class _Store(_Readable, Protocol):
    @property
    def max_wait_s(self) -> float: ...


class _Writable(_Store, Protocol):
    def find(self, uri: str) -> bytes | None: ...
    def write_new(self, uri: str, data: bytes) -> bool: ...
    def replace(self, uri: str, data: bytes) -> None: ...
    def list(self, uri: str) -> Iterator[ObjectInfo]: ...
    def remove(self, uri: str) -> None: ...
    def ensure_root(self, uri: str) -> None: ...


class ObjectStore:
    """Reads and writes objects.

    Cheap to create; safe to share between threads, to pickle, and to use after a fork: connections are
    opened on first use, per process.

    Besides the errors listed, every method raises ConfigurationError (unknown scheme, no such bucket,
    rejected credentials) and StoreUnavailableError (no response after the configured attempts).
    """

    def __init__(
        self,
        s3: S3Options | None = None,
        web: WebOptions | None = None,
        *,
        buckets: Iterable[str] = (),
        archive_indexes: IndexStore | None = None,
    ) -> None:
        """Store the options; no connection is opened yet.

        Args:
            s3: How S3 is reached.
            web: How the web is reached.
            buckets: The S3 buckets that may be used; all if empty.
            archive_indexes: Where indexes of archives are kept for other processes; None keeps them in memory only.
        """
        self._folder = FileStore()
        self._inline = DataUri()
        self._s3_options = s3 or S3Options()
        self._web_options = web or WebOptions()
        self._buckets = frozenset(buckets)
        self._archives = Archives(self, archive_indexes)
        self._cancellation = Cancellation()

    @cached_property
    def _s3(self) -> S3:
        module = require("reelabel.sources.s3", extra="s3", purpose="Reading s3://")
        return cast("S3", module.S3(self._s3_options, self._buckets, self._cancellation))

    @cached_property
    def _web(self) -> Web:
        module = require("reelabel.sources.web", extra="web", purpose="Reading http:// and https://")
        return cast("Web", module.Web(self._web_options, self._cancellation))

    def cancel(self) -> None:
        """Cancel all requests to the web and to S3, reads and writes alike; called by another thread than theirs.

        They, and all later ones, raise ReadingEndedError.
        """
        self._cancellation.cancel()

    def stat(self, uri: str) -> ObjectInfo:
        """Return the metadata of an object.

        Raises:
            ObjectMissingError: There is no object at `uri`.
        """
        return self._readable(uri).stat(uri)

    def stat_many_near(self, uris: Iterable[str]) -> dict[str, ObjectInfo]:
        """Return the metadata of many objects with few requests, by listing those that are close together by name.

        Returns:
            The objects found this way, by URI; call `stat` for the others.

        Raises:
            TransientError: The store is unavailable.
        """
        on_s3 = [uri for uri in uris if uri.startswith("s3://")]
        members = [uri for uri in on_s3 if split_member(uri)]
        files = [uri for uri in on_s3 if not split_member(uri)]
        try:
            with failing_alone("The look at several objects at once"):
                found = self._s3.stat_many_near(files) if files else {}
                return found | self._archives.stat_many(members)
        except (ConfigurationError, InternalError):
            return {}  # caused by a single object, for which `stat` raises it

    def member_index(self, archive: str) -> MemberIndex:
        """Return the members of a tar or zip.

        Raises:
            ObjectMissingError: There is no archive at the URI.
            VideoRefusedError: Its server sends no ranges.
        """
        return self._archives.index_of(archive)

    def reach(self, uris: Iterable[str]) -> None:
        """Check that S3 responds for the buckets of some objects, even with an error; other URIs are ignored.

        Raises:
            StoreUnavailableError: S3 does not respond.
        """
        for bucket in sorted({"/".join(uri.split("/", 3)[:3]) for uri in uris if uri.startswith("s3://")}):
            with suppress(ObjectError, ConfigurationError):
                self._s3.stat(f"{bucket}/reelabel-asks-who-is-there")

    def read(self, uri: str, *, fingerprint: str | None = None, max_bytes: int | None = None) -> bytes:
        """Read a whole object; require a fingerprint, as returned by `stat` or `list`, and a size, if given.

        Raises:
            ObjectMissingError: There is no object at `uri`.
            ObjectChangedError: The object does not have that fingerprint, or is replaced while it is read.
            ObjectTooLargeError: The object is larger than `max_bytes`.
        """
        return self._readable(uri).read(uri, fingerprint=fingerprint, max_bytes=max_bytes)

    def find(self, uri: str) -> bytes | None:
        """Read a whole object on S3 or in a folder; return None if there is none."""
        return self._writable(uri).find(uri)

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Read a range of an object.

        Args:
            uri: The object.
            start: Position of the first byte, from 0.
            size: Number of bytes, at least 1. Fewer are returned if the object ends before.
            fingerprint: Required fingerprint, as returned by `stat` or `list`.

        Raises:
            ObjectMissingError: There is no object at `uri`.
            ObjectChangedError: The object does not have that fingerprint.
            RangesIgnoredError: The server does not support ranges; use `download`.
        """
        return self._readable(uri).read_range(uri, start=start, size=size, fingerprint=fingerprint)

    def read_part(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Read a range, as `read_range` does, out of the whole object where the server does not support ranges."""
        try:
            return self.read_range(uri, start=start, size=size, fingerprint=fingerprint)
        except RangesIgnoredError:
            return self.read(uri, fingerprint=fingerprint)[start : start + size]

    def max_wait_s(self, uri: str) -> float:
        """Return the most seconds that a request can take, including retries, before it fails."""
        place = split_member(uri)
        return self._store(place.archive if place else uri).max_wait_s

    def download(self, uri: str, path: Path, *, fingerprint: str | None = None, max_bytes: int | None = None) -> int:
        """Download an object to the file `path`, which is removed on failure; return the number of bytes written.

        Raises:
            ObjectError: As for `read`.
        """
        return self._readable(uri).download(uri, path, fingerprint=fingerprint, max_bytes=max_bytes)

    def write_new(self, uri: str, data: bytes) -> bool:
        """Write an object unless it exists; of concurrent calls, exactly one succeeds.

        Returns:
            Whether this call wrote it.
        """
        return self._writable(uri).write_new(uri, data)

    def replace(self, uri: str, data: bytes) -> None:
        """Write an object atomically: readers see either the old or the new one."""
        self._writable(uri).replace(uri, data)

    def list(self, uri: str) -> Iterator[ObjectInfo]:
        """Yield all objects below a folder or prefix, sorted by name; none if it does not exist."""
        return self._writable(uri).list(uri)

    def remove(self, uri: str) -> None:
        """Remove an object if it exists."""
        self._writable(uri).remove(uri)

    def ensure_root(self, uri: str) -> None:
        """Create the bucket of `uri`, or the folder `uri`, if it does not exist."""
        self._writable(uri).ensure_root(uri)

    @contextmanager
    def open_local(self, uri: str, roots: Sequence[Path] = ()) -> Iterator[LocalFile | ArchiveMember]:
        """Open a local file, one for which `local_path` returns a path, or a member of it, for a `with` block.

        It must lie in one of the folders, with symlinks resolved; without any, every folder is allowed.

        Raises:
            VideoRefusedError: It lies in none of the folders.
            ObjectMissingError: There is no regular file at `uri`.
        """
        place = split_member(uri)
        with self._folder.open(place.archive if place else uri, roots) as file:
            yield self._archives.open(file, uri) if place else file

    def local_path(self, uri: str) -> Path | None:
        """Return the path of a `file://` URI or plain path, of the archive if it is a member; None for other URIs."""
        place = split_member(uri)
        file = place.archive if place else uri
        return self._folder.path(file) if self._store(file) is self._folder else None

    def _readable(self, uri: str) -> _Readable:
        return self._archives if split_member(uri) else self._store(uri)

    def _store(self, uri: str) -> _Store:
        self._cancellation.check()
        scheme = scheme_of(uri)
        if scheme in WEB_SCHEMES:
            return self._web
        return self._inline if scheme == INLINE_SCHEME else self._writable(uri)

    def _writable(self, uri: str) -> _Writable:
        if split_member(uri):
            raise ConfigurationError(f"{redact_uri(uri)} is a member of an archive, which is read-only.")
        scheme = scheme_of(uri)
        if scheme is None or scheme == "file":
            return self._folder
        if scheme == "s3":
            return self._s3
        if scheme in {*WEB_SCHEMES, INLINE_SCHEME}:
            raise ConfigurationError(f"{redact_uri(uri)} is read-only; to write or list, use s3://, file:// or a path.")
        raise ConfigurationError(
            f"{redact_uri(uri)} has an unknown scheme; use s3://, file://, https://, http://, data: or a path."
        )


_BASE64 = ";base64"
_CHARACTERS_PER_BYTE = 3  # a percent-encoded byte, such as %41


class DataUri:
    """Reads objects embedded in their URI (RFC 2397), `data:video/mp4;base64,AAAA`, which are immutable."""

    max_wait_s = math.inf

    def stat(self, uri: str) -> ObjectInfo:
        """Return the size and fingerprint of the data."""
        return _describe(uri, _decode(uri))

    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes:
        """Return the data."""
        if max_bytes is not None and len(uri) > _CHARACTERS_PER_BYTE * max_bytes + len(uri.partition(",")[0]) + 1:
            raise too_large(uri, max_bytes)  # not even decoded
        data = _decode(uri)
        _describe(uri, data).require(fingerprint=fingerprint, max_bytes=max_bytes)
        return data

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Return a range of the data."""
        return self.read(uri, fingerprint=fingerprint, max_bytes=None)[start : start + size]

    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int:
        """Write the data to `path`."""
        data = self.read(uri, fingerprint=fingerprint, max_bytes=max_bytes)
        with partial_file(path) as file:
            return file.write(data)


def _describe(uri: str, data: bytes) -> ObjectInfo:
    fingerprint = f"data:{len(data)}:{hashlib.sha256(data).hexdigest()}"
    return ObjectInfo(uri=uri, size_bytes=len(data), fingerprint=fingerprint)


def _decode(uri: str) -> bytes:
    header, comma, text = uri.partition(",")
    if not comma:
        raise VideoRefusedError(f"{redact_uri(uri)} has no comma before its data; write data:video/mp4;base64,AAAA.")
    data = unquote_to_bytes(text)
    if not header.lower().endswith(_BASE64):
        return data
    try:
        return base64.b64decode(b"".join(data.split()), validate=True)  # it may contain line breaks
    except binascii.Error as error:
        raise VideoRefusedError(f"{redact_uri(uri)} is not valid base64: {error}; encode the video again.") from None
