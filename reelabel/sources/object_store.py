"""One interface to objects of all kinds: `s3://`, `file://` and paths, and read-only web, fsspec's and `data:` URIs.

A member of an archive (`s3://bucket/shard.tar#clip.mp4`) is read as an object of its own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote_to_bytes

from reelabel.errors import ConfigurationError, InternalError, ObjectError, RangesIgnoredError, VideoRefusedError
from reelabel.optional import require
from reelabel.options import S3Options, WebOptions
from reelabel.sources.archives import Archives
from reelabel.sources.cancel import Cancellation
from reelabel.sources.local import FileStore
from reelabel.sources.object_info import (
    INLINE_SCHEME,
    ObjectInfo,
    is_read_by_fsspec,
    redact_uri,
    scheme_of,
    split_member,
    too_large,
)
from reelabel.sources.source import BytesSource, Source, StoredSource
from reelabel.unexpected import failing_alone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from reelabel.sources.filesystems import Filesystems
    from reelabel.sources.members import IndexStore, MemberIndex
    from reelabel.sources.s3 import S3
    from reelabel.sources.web import Web


__all__ = ["ObjectInfo", "ObjectStore"]


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
        allow_roots: Iterable[Path] = (),
        archive_indexes: IndexStore | None = None,
    ) -> None:
        """Store the options; no connection is opened yet.

        Args:
            s3: How S3 is reached.
            web: How the web is reached.
            buckets: The S3 buckets that may be used; all if empty.
            allow_roots: The folders in which local files and archives that are read must lie, with symlinks resolved;
                all if empty.
            archive_indexes: Where indexes of archives are kept for other processes; None keeps them in memory only.

        Raises:
            TypeError: A string is given in place of a list, of which each letter would be a folder or a bucket.
        """
        if isinstance(allow_roots, str) or isinstance(buckets, str):
            raise TypeError("allow_roots and buckets are lists, even of a single folder or bucket.")
        self._folder = FileStore(allow_roots)
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

    @cached_property
    def _filesystems(self) -> Filesystems:
        module = require("reelabel.sources.filesystems", extra="fsspec", purpose="Reading gs://, az:// and hf://")
        return cast("Filesystems", module.Filesystems(self._web_options, self._buckets, self._cancellation))

    def cancel(self) -> None:
        """Cancel all requests to servers, reads and writes alike; called by another thread than theirs.

        They, and all later ones, raise ReadingEndedError.
        """
        self._cancellation.cancel()

    def stat(self, uri: str) -> ObjectInfo:
        """Return the metadata of an object; raise ObjectMissingError if there is none."""
        if remote := self._remote(uri):
            return remote.stat(uri)
        with self._open_source(uri) as source:
            return source.info

    @contextmanager
    def open(self, uri: str, *, known: ObjectInfo | None = None) -> Iterator[Source]:
        """Open one version of an object for a `with` block: that in `known`, as looked up earlier, or the current one.

        Raises VideoRefusedError if it lies in none of the folders that are allowed, ObjectMissingError,
        ObjectChangedError if it is another version now, and ReadingEndedError if the store was cancelled.
        """
        if self._remote(uri):
            yield StoredSource(self, known or self.stat(uri))
            return
        with self._open_source(uri, fingerprint=known.fingerprint if known else None) as source:
            yield source

    @contextmanager
    def _open_source(
        self, uri: str, *, fingerprint: str | None = None, max_bytes: int | None = None
    ) -> Iterator[Source]:
        place = split_member(uri)
        with ExitStack() as stack:
            if scheme_of(uri) == INLINE_SCHEME:
                source: Source = open_data_uri(uri, max_bytes=max_bytes)
            elif place and self._remote(place.archive):
                source = self._archives.open_remote(uri, fingerprint)
            else:
                file = stack.enter_context(self._folder.open(place.archive if place else uri))
                source = self._archives.open(file, uri) if place else file
            source.info.require(fingerprint=fingerprint, max_bytes=max_bytes)
            yield source

    def stat_many(self, uris: Iterable[str]) -> dict[str, ObjectInfo]:
        """Look up many objects with few requests, by listing them; return the metadata of those found, by URI.

        Call `stat` for the others.
        """
        on_s3 = [uri for uri in uris if uri.startswith("s3://")]
        members = [uri for uri in on_s3 if split_member(uri)]
        files = [uri for uri in on_s3 if not split_member(uri)]
        try:
            with failing_alone("The look at several objects at once"):
                found = self._s3.stat_many(files) if files else {}
                return found | self._archives.stat_many(members)
        except (ConfigurationError, InternalError):
            return {}  # caused by a single object, for which `stat` raises it

    def member_index(self, archive: str) -> MemberIndex:
        """Return the members of a tar or zip.

        Raises ObjectMissingError if there is no archive, and VideoRefusedError if its server sends no ranges.
        """
        return self._archives.index_of(archive)

    def check_reachable(self, uris: Iterable[str]) -> None:
        """Raise StoreUnavailableError if S3 does not respond at all for the buckets of some objects."""
        for bucket in sorted({"/".join(uri.split("/", 3)[:3]) for uri in uris if uri.startswith("s3://")}):
            with suppress(ObjectError, ConfigurationError):
                self._s3.stat(f"{bucket}/reelabel-asks-who-is-there")

    def read(self, uri: str, *, fingerprint: str | None = None, max_bytes: int | None = None) -> bytes:
        """Read a whole object; require a fingerprint, as returned by `stat` or `list`, and a size, if given.

        Raises ObjectMissingError, ObjectChangedError if it does not have that fingerprint, or is replaced while it is
        read, and ObjectTooLargeError if it is larger than `max_bytes`.
        """
        if remote := self._remote(uri):
            return remote.read(uri, fingerprint=fingerprint, max_bytes=max_bytes)
        with self._open_source(uri, fingerprint=fingerprint, max_bytes=max_bytes) as source:
            data = b"".join(source.pieces())
            source.check_unchanged()
            return data

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Read a range of an object, fewer bytes if it ends before.

        Raises ObjectMissingError, ObjectChangedError if it does not have that fingerprint, and RangesIgnoredError if
        the server does not support ranges; use `download`.
        """
        if remote := self._remote(uri):
            return remote.read_range(uri, start=start, size=size, fingerprint=fingerprint)
        with self._open_source(uri, fingerprint=fingerprint) as source:
            data = source.read(start, size)
            source.check_unchanged()
            return data

    def read_part(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Read a range, as `read_range` does, out of the whole object where the server does not support ranges."""
        try:
            return self.read_range(uri, start=start, size=size, fingerprint=fingerprint)
        except RangesIgnoredError:
            return self.read(uri, fingerprint=fingerprint)[start : start + size]

    def max_wait_s(self, uri: str) -> float:
        """Return the maximum number of seconds that a request can take, including retries, before it fails."""
        place = split_member(uri)
        remote = self._remote(place.archive if place else uri)
        return remote.max_wait_s if remote else math.inf

    def download(self, uri: str, path: Path, *, fingerprint: str | None = None, max_bytes: int | None = None) -> int:
        """Download an object to `path`, removed on failure, and return its size; raises as `read` does."""
        if remote := self._remote(uri):
            return remote.download(uri, path, fingerprint=fingerprint, max_bytes=max_bytes)
        with self._open_source(uri, fingerprint=fingerprint, max_bytes=max_bytes) as source:
            return source.copy_to(path)

    def write_new(self, uri: str, data: bytes) -> bool:
        """Write an object unless it exists, and return whether that was so; of concurrent calls, one succeeds."""
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

    def local_path(self, uri: str) -> Path | None:
        """Return the path of a `file://` URI or plain path, of the archive if it is a member; None for other URIs."""
        place = split_member(uri)
        file = place.archive if place else uri
        is_local = scheme_of(file) != INLINE_SCHEME and self._remote(file) is None
        return self._folder.path(file) if is_local else None

    def _remote(self, uri: str) -> S3 | Web | Filesystems | None:
        self._cancellation.check()
        if split_member(uri):
            return None
        match scheme_of(uri):
            case "s3":
                return self._s3
            case "http" | "https":
                return self._web
            case None | "file" | "data":
                return None
        if is_read_by_fsspec(uri):
            return self._filesystems
        raise ConfigurationError(
            f"{redact_uri(uri)} has an unknown scheme; use s3://, gs://, az://, hf://, https://, http://, "
            "file://, data:, a path, or fsspec+ before any other scheme that fsspec knows."
        )

    def _writable(self, uri: str) -> FileStore | S3:
        if split_member(uri):
            raise ConfigurationError(f"{redact_uri(uri)} is a member of an archive, which is read-only.")
        if scheme_of(uri) in {None, "file"}:
            return self._folder
        if scheme_of(uri) == "s3" and self._remote(uri):
            return self._s3
        raise ConfigurationError(f"{redact_uri(uri)} is read-only; to write or list, use s3://, file:// or a path.")


_BASE64 = ";base64"
_CHARACTERS_PER_BYTE = 3  # a percent-encoded byte, such as %41


def open_data_uri(uri: str, *, max_bytes: int | None = None) -> BytesSource:
    """Decode an object within its URI (RFC 2397): `data:video/mp4;base64,AAAA`; VideoRefusedError if it cannot be.

    One that is obviously larger than `max_bytes` is not even decoded: ObjectTooLargeError.
    """
    if max_bytes is not None and len(uri) > _CHARACTERS_PER_BYTE * max_bytes + len(uri.partition(",")[0]) + 1:
        raise too_large(uri, max_bytes)
    data = _decode(uri)
    fingerprint = f"data:{len(data)}:{hashlib.sha256(data).hexdigest()}"
    return BytesSource(ObjectInfo(uri=uri, size_bytes=len(data), fingerprint=fingerprint), data)


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
