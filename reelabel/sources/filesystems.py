"""Reading objects by fsspec, from `gs://`, `az://`, `hf://`, `fsspec+sftp://` and others; they are never written.

How a filesystem is reached (account, endpoint, token) is up to its package, which reads the environment, its own files
and fsspec's configuration (`FSSPEC_GS_TOKEN=anon`, `~/.config/fsspec/*.json`).
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from fsspec import get_filesystem_class

from reelabel.errors import (
    ConfigurationError,
    ObjectMissingError,
    ObjectRefusedError,
    RangesIgnoredError,
    ReelabelError,
    StoreUnavailableError,
)
from reelabel.sources.object_info import CLOUD_SCHEMES, FSSPEC_PREFIX, ObjectInfo, changed, redact_uri, unescape_name
from reelabel.sources.source import partial_file
from reelabel.text import on_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from reelabel.options import WebOptions
    from reelabel.sources.cancel import Cancellation

_T = TypeVar("_T")
_PIECE_BYTES = 8 * 1024**2
_CHECK_EVERY_S = 0.2
_REFUSALS = {"401", "403"}
# Fields that identify a version, the most reliable first.
_VERSIONS = ("generation", "version_id", "VersionId", "etag", "ETag", "blob_id")
_TIMES = ("mtime", "last_modified", "LastModified", "updated", "created")


class Filesystems:
    def __init__(self, settings: WebOptions, buckets: frozenset[str], cancellation: Cancellation) -> None:
        self._settings = settings
        self._buckets = buckets
        self._cancellation = cancellation

    @property
    def max_wait_s(self) -> float:
        return self._settings.total_timeout_s

    def stat(self, uri: str) -> ObjectInfo:
        def look(filesystem: Any, path: str) -> dict[str, Any]:  # noqa: ANN401
            filesystem.invalidate_cache(path)
            return dict(filesystem.info(path))

        return _describe(uri, self._call(uri, look))

    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes:
        return b"".join(self._pieces(uri, fingerprint, max_bytes))

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:  # noqa: ARG002
        """Read a range of an object; only `stat` knows its version."""
        data = self._call(uri, lambda filesystem, path: filesystem.cat_file(path, start=start, end=start + size))
        if len(data) > size:
            raise RangesIgnoredError(f"{redact_uri(uri)} cannot be read by ranges; download the whole object.")
        return bytes(data)

    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int:
        with partial_file(path) as file:
            file.writelines(self._pieces(uri, fingerprint, max_bytes))
            return file.tell()

    def _pieces(self, uri: str, fingerprint: str | None, max_bytes: int | None) -> Iterator[bytes]:
        info = self.stat(uri)
        info.require(fingerprint=fingerprint, max_bytes=max_bytes)
        for start in range(0, info.size_bytes, _PIECE_BYTES):
            size = min(_PIECE_BYTES, info.size_bytes - start)
            piece = self.read_range(uri, start=start, size=size, fingerprint=info.fingerprint)
            if len(piece) != size:
                raise changed(uri)
            yield piece
        self.stat(uri).require(fingerprint=info.fingerprint, max_bytes=None)

    def _call(self, uri: str, work: Callable[[Any, str], _T]) -> _T:
        """Work in a thread, as no filesystem can be interrupted: it is abandoned at the deadline or on `cancel`."""
        self._cancellation.check()
        until_s = time.monotonic() + self.max_wait_s
        future: Future[_T] = Future()
        Thread(target=_finish, args=(future, lambda: work(*self._locate(uri))), daemon=True).start()
        while not wait([future], timeout=_CHECK_EVERY_S).done:
            self._cancellation.check()
            if time.monotonic() >= until_s:
                raise StoreUnavailableError(
                    f"{redact_uri(uri)} took longer than web.total_timeout_s; raise it, or try again."
                )
        with _converted_errors(uri):
            return future.result()

    def _locate(self, uri: str) -> tuple[Any, str]:
        address = unescape_name(uri).removeprefix(FSSPEC_PREFIX)
        protocol, _, rest = address.partition("://")
        if protocol not in CLOUD_SCHEMES and protocol not in self._settings.allow_protocols:
            raise ConfigurationError(
                f"{redact_uri(uri)} may not be read: web.allow_protocols does not list {protocol}."
            )
        bucket = rest.partition("/")[0]
        if self._buckets and bucket not in self._buckets:
            raise ConfigurationError(f"{redact_uri(uri)} is in none of the allowed buckets.")
        try:
            kind = get_filesystem_class(protocol)
            options, path = kind._get_kwargs_from_urls(address), kind._strip_protocol(address)  # noqa: SLF001 - as url_to_fs
            return kind(**options), path
        except (ImportError, ValueError, TypeError) as error:  # a missing package, an unknown protocol, no account
            raise ConfigurationError(f"{redact_uri(uri)} cannot be read: {on_one_line(str(error))}") from None


def _finish(future: Future[_T], work: Callable[[], _T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - for the thread that waits
        future.set_exception(error)


def _describe(uri: str, found: dict[str, Any]) -> ObjectInfo:
    if found.get("type") == "directory":
        raise ObjectMissingError(f"{redact_uri(uri)} is a folder.")
    size_bytes = found.get("size")
    named = next((found[name] for name in (*_VERSIONS, *_TIMES) if found.get(name) is not None), None)
    if not isinstance(size_bytes, int) or named is None:
        raise ConfigurationError(f"{redact_uri(uri)} has no size, or neither a version nor a time of its last change.")
    return ObjectInfo(uri=uri, size_bytes=size_bytes, fingerprint=f"fsspec:{size_bytes}:{named}")


@contextmanager
def _converted_errors(uri: str) -> Iterator[None]:
    shown = redact_uri(uri)
    try:
        yield
    except ReelabelError:
        raise
    except (FileNotFoundError, IsADirectoryError):
        raise ObjectMissingError(f"There is no object at {shown}.") from None
    except Exception as error:
        status = next(filter(None, (getattr(error, name, None) for name in ("status_code", "status", "code"))), None)
        reason = on_one_line(f"{type(error).__name__}: {error}")
        if isinstance(error, PermissionError) or str(status) in _REFUSALS:
            raise ObjectRefusedError(f"{shown} may not be read with these credentials ({reason}).") from error
        raise StoreUnavailableError(f"{shown} could not be read ({reason}); try again later.") from error
