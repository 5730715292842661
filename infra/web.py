"""Objects on the web: `https://host/path`, read-only."""

from __future__ import annotations

import io
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, TypeVar

from urllib3.exceptions import InvalidHeader, MaxRetryError
from urllib3.util import Retry

from infra.errors import RangesIgnoredError, StoreUnavailableError
from infra.folder import partial_file
from infra.object_info import ObjectInfo, changed
from infra.uri import redact_uri
from infra.web_answer import AttemptFailedError, open_response
from infra.web_copy import WebCopy
from infra.web_deadline import Deadline
from infra.web_guard import guarded_pools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import BinaryIO

    from urllib3 import BaseHTTPResponse, PoolManager

    from infra.settings import WebSettings
    from infra.web_answer import WebResponse

    # Requests the bytes from one position to another, or to the end, and opens the response.
    Ask = Callable[[int, int | None], AbstractContextManager[WebResponse]]

_BACKOFF_S = 0.25
_LONGEST_WAIT_S = 30
# Most bytes read to learn the length of an object whose server does not send it.
_MAX_UNSIZED_BYTES = 1024**3
_connections_lock = Lock()
_T = TypeVar("_T")


class Web:
    """Reads objects from the web servers that the settings allow.

    Only GET is used: many servers reject HEAD, as do all URLs that are signed for GET. Each response carries
    the version of the object, so that a replaced object is detected before its first byte is read.
    """

    def __init__(self, settings: WebSettings) -> None:
        """Store `settings`; no connection is opened yet."""
        self._settings = settings

    @property
    def patience_s(self) -> float:
        """Most seconds that a request can take, including retries, before it fails."""
        return self._settings.total_timeout_s

    def stat(self, uri: str) -> ObjectInfo:
        """Return the metadata of an object: from its first byte, or from all if there is no length or version."""

        def look(ask: Ask) -> ObjectInfo | None:
            with ask(0, 0) as answer:
                if answer.size_bytes is None or answer.fingerprint is None:
                    return None
                return ObjectInfo(uri=uri, size_bytes=answer.size_bytes, fingerprint=answer.fingerprint)

        return self._attempt(uri, look) or self._measure(uri)

    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes:
        """Read a whole object."""
        sink = io.BytesIO()
        self._copy(uri, sink, fingerprint=fingerprint, max_bytes=max_bytes)
        return sink.getvalue()

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Read a range of an object."""

        def read_part(ask: Ask) -> bytes:
            with ask(start, start + size - 1) as answer:
                return _take_part(answer, start=start, size=size, fingerprint=fingerprint)

        return self._attempt(uri, read_part)

    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int:
        """Download an object to `path`."""
        with partial_file(path) as file:
            return self._copy(uri, file, fingerprint=fingerprint, max_bytes=max_bytes).size_bytes

    def _measure(self, uri: str) -> ObjectInfo:
        return self._copy(uri, None, fingerprint=None, max_bytes=_MAX_UNSIZED_BYTES)

    def _copy(self, uri: str, sink: BinaryIO | None, *, fingerprint: str | None, max_bytes: int | None) -> ObjectInfo:
        copy = WebCopy(uri, sink, fingerprint=fingerprint, max_bytes=max_bytes)

        def resume(ask: Ask) -> ObjectInfo:
            with ask(copy.next_byte, None) as answer:
                copy.take(answer)
            return copy.info

        return self._attempt(uri, resume)

    def _attempt(self, uri: str, work: Callable[[Ask], _T]) -> _T:
        """Retry `work` until it succeeds, with growing pauses, or those that the server requests."""
        deadline = Deadline(redact_uri(uri), time.monotonic() + self._settings.total_timeout_s)
        retries = Retry(
            total=self._settings.max_attempts - 1,
            backoff_factor=_BACKOFF_S,
            backoff_jitter=_BACKOFF_S,
        )
        while True:
            try:
                return work(lambda first, last: self._ask(uri, first, last, deadline=deadline))
            except AttemptFailedError as error:
                try:
                    retries = retries.increment("GET", uri, response=error.response, error=error)
                except MaxRetryError:
                    raise StoreUnavailableError(
                        f"{redact_uri(uri)} could not be read in {self._settings.max_attempts} attempts ({error}); "
                        "try again later."
                    ) from error
                longest_s = min(_LONGEST_WAIT_S, deadline.left_s())
                _wait(retries.new(backoff_max=longest_s, retry_after_max=longest_s), error.response)

    @contextmanager
    def _ask(self, uri: str, first: int, last: int | None, *, deadline: Deadline) -> Iterator[WebResponse]:
        connections = _connections(self._settings)
        with (
            connections.slots,
            open_response(
                connections.pools,
                uri,
                headers={"Range": f"bytes={first}-{'' if last is None else last}"},
                deadline=deadline,
            ) as answer,
        ):
            yield answer


def _wait(retries: Retry, response: BaseHTTPResponse | None) -> None:
    try:
        retries.sleep(response)
    except (InvalidHeader, ValueError, OverflowError):  # its Retry-After is invalid
        retries.sleep()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connections:
    pools: PoolManager
    slots: BoundedSemaphore


def _connections(settings: WebSettings) -> _Connections:
    # The lock ensures that only one thread creates the pools. The process id is part of the key
    # because a fork must not share its parent's connections.
    with _connections_lock:
        return _connections_of(settings, os.getpid())


@lru_cache(maxsize=8)
def _connections_of(settings: WebSettings, _pid: int) -> _Connections:
    return _Connections(pools=guarded_pools(settings), slots=BoundedSemaphore(settings.max_concurrency))


def _take_part(answer: WebResponse, *, start: int, size: int, fingerprint: str) -> bytes:
    if answer.start is None:  # past the end: such a response has no version, but it has the length
        if fingerprint.startswith(f"http:{answer.size_bytes}:"):
            return b""
        raise changed(answer.uri)
    if answer.fingerprint is None or answer.start != start:
        raise RangesIgnoredError(
            f"The server of {answer.uri} does not support ranges of a version; download the whole object."
        )
    if answer.fingerprint != fingerprint:
        raise changed(answer.uri)
    data = bytearray()
    for chunk in answer.chunks():
        data += chunk
        if len(data) >= size:
            break
    expected = min(size, (answer.size_bytes or 0) - start)
    if len(data) < expected:
        raise AttemptFailedError(f"{len(data):,} of {expected:,} bytes received")
    return bytes(data[:size])
