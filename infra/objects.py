"""Objects by URI: `s3://`, `file://`, paths, and to read alone `http(s)://` and `data:`; one set of verbs for all."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from infra.errors import ConfigurationError, ObjectError
from infra.folder import Folder
from infra.inline import Inline
from infra.object_info import ObjectInfo
from infra.s3 import S3
from infra.settings import WebSettings
from infra.uri import INLINE_SCHEME, WEB_SCHEMES, scheme_of, show_uri
from infra.web import Web

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from infra.settings import StoreSettings

__all__ = ["ObjectInfo", "ObjectStore"]


class _Readable(Protocol):
    @property
    def patience_s(self) -> float: ...
    def stat(self, uri: str) -> ObjectInfo: ...
    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes: ...
    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes: ...
    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int: ...


class _Writable(_Readable, Protocol):
    def write_new(self, uri: str, data: bytes) -> bool: ...
    def replace(self, uri: str, data: bytes) -> None: ...
    def list(self, uri: str) -> Iterator[ObjectInfo]: ...
    def remove(self, uri: str) -> None: ...
    def ensure_root(self, uri: str) -> None: ...


class ObjectStore:
    """Reads and writes objects.

    Cheap to make, safe to share between threads, to pickle and to carry through a fork:
    connections are opened at the first call and belong to the process.

    Every method raises ConfigurationError (unknown scheme, no such bucket, refused credentials) and
    StoreUnavailableError (no answer after the configured attempts), besides what it names.
    """

    def __init__(self, store: StoreSettings, web: WebSettings | None = None) -> None:
        """Keep the settings of S3 and, unless they are the defaults, of the web; nothing is opened yet."""
        self._folder = Folder()
        self._s3 = S3(store)
        self._web = Web(web or WebSettings())
        self._inline = Inline()

    def stat(self, uri: str) -> ObjectInfo:
        """Look at one object.

        Raises:
            ObjectMissingError: Nothing stands at `uri`.
        """
        return self._readable(uri).stat(uri)

    def stat_near(self, uris: Iterable[str]) -> dict[str, ObjectInfo]:
        """Look at many objects by few requests, where their store lists those that stand close together.

        Returns:
            What was found so, by URI; look at the others one by one.
        """
        listed = [uri for uri in uris if uri.startswith("s3://")]
        return self._s3.stat_near(listed) if listed else {}

    def reach(self, uris: Iterable[str]) -> None:
        """See that S3 answers for the buckets of some objects, whatever it says; what stands elsewhere is left out.

        Raises:
            StoreUnavailableError: It does not answer.
        """
        for bucket in sorted({"/".join(uri.split("/", 3)[:3]) for uri in uris if uri.startswith("s3://")}):
            with suppress(ObjectError, ConfigurationError):
                self._s3.stat(f"{bucket}/reelabel-asks-who-is-there")

    def read(self, uri: str, *, fingerprint: str | None = None, max_bytes: int | None = None) -> bytes:
        """Read one object whole.

        Args:
            uri: Where it stands.
            fingerprint: The object must still be the one `stat` or `list` described so.
            max_bytes: The most it may have.

        Raises:
            ObjectMissingError: Nothing stands at `uri`.
            ObjectChangedError: It is not, or does not stay, the object of `fingerprint`.
            ObjectTooLargeError: It is larger than `max_bytes`.
        """
        return self._readable(uri).read(uri, fingerprint=fingerprint, max_bytes=max_bytes)

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Read a part of one object.

        Args:
            uri: Where it stands.
            start: Position of the first byte, from 0.
            size: How many bytes; at least 1. Fewer come back where the object ends before.
            fingerprint: The object must still be the one `stat` or `list` described so.

        Raises:
            ObjectMissingError: Nothing stands at `uri`.
            ObjectChangedError: It is no longer the object of `fingerprint`.
            RangesIgnoredError: The server gives whole objects only; `download` it.
        """
        return self._readable(uri).read_range(uri, start=start, size=size, fingerprint=fingerprint)

    def patience_s(self, uri: str) -> float:
        """Tell how many seconds one request may take, attempts and all, before it fails."""
        return self._readable(uri).patience_s

    def download(self, uri: str, path: Path, *, fingerprint: str | None = None, max_bytes: int | None = None) -> int:
        """Copy one object into the file `path`, which is removed again if that fails.

        Returns:
            How many bytes were written.

        Raises:
            ObjectError: As for `read`.
        """
        return self._readable(uri).download(uri, path, fingerprint=fingerprint, max_bytes=max_bytes)

    def write_new(self, uri: str, data: bytes) -> bool:
        """Write an object unless one stands there; of many who try at once, one succeeds.

        Returns:
            Whether this call wrote it.
        """
        return self._writable(uri).write_new(uri, data)

    def replace(self, uri: str, data: bytes) -> None:
        """Write an object; readers see the old one or the new one whole."""
        self._writable(uri).replace(uri, data)

    def list(self, uri: str) -> Iterator[ObjectInfo]:
        """Walk through everything below a folder or prefix, in the order of names; nothing there is no error."""
        return self._writable(uri).list(uri)

    def remove(self, uri: str) -> None:
        """Remove one object; nothing there is no error."""
        self._writable(uri).remove(uri)

    def ensure_root(self, uri: str) -> None:
        """Make the bucket of `uri`, or the folder `uri`, if it is not there."""
        self._writable(uri).ensure_root(uri)

    def local_path(self, uri: str) -> Path | None:
        """Name the file of a `file://` URI or plain path; None for objects that are elsewhere."""
        return self._folder.path(uri) if self._readable(uri) is self._folder else None

    def _readable(self, uri: str) -> _Readable:
        scheme = scheme_of(uri)
        if scheme in WEB_SCHEMES:
            return self._web
        return self._inline if scheme == INLINE_SCHEME else self._writable(uri)

    def _writable(self, uri: str) -> _Writable:
        scheme = scheme_of(uri)
        if scheme is None or scheme == "file":
            return self._folder
        if scheme == "s3":
            return self._s3
        if scheme in {*WEB_SCHEMES, INLINE_SCHEME}:
            raise ConfigurationError(
                f"{show_uri(uri)} can be read only; to write or list, use s3://, file:// or a path."
            )
        raise ConfigurationError(
            f"{uri} has the unknown scheme {scheme}://; use s3://, file://, https://, http://, data: or a path."
        )
