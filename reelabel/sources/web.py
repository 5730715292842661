"""Objects on the web: `https://host/path`, read and never written."""

from __future__ import annotations

import hashlib
import io
import time
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, BinaryIO, TypeVar
from urllib.parse import urlsplit

from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from reelabel.errors import RangesIgnoredError, StoreUnavailableError
from reelabel.per_process import once_per_process
from reelabel.sources.cancel import Cancellation, Deadline
from reelabel.sources.connections import filtered_pools
from reelabel.sources.object_info import ObjectInfo, changed, redact_uri, too_large
from reelabel.sources.source import partial_file
from reelabel.sources.web_request import AttemptFailedError, Requests, WebResponse, open_response
from reelabel.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from urllib3 import BaseHTTPResponse, PoolManager

    from reelabel.options import WebOptions

    Ask = Callable[[int | None, int | None], AbstractContextManager[WebResponse]]

if not hasattr(Retry, "DEFAULT_RETRY_AFTER_MAX"):
    raise ModuleNotFoundError("urllib3 is too old", name="a newer urllib3")


class WebCopy:
    """A download that resumes where an attempt broke off, and never mixes versions of the object."""

    def __init__(self, uri: str, sink: BinaryIO | None, *, fingerprint: str | None, max_bytes: int | None) -> None:
        """Copy the object with `fingerprint` to `sink`, which is seekable and empty; if None, only measure it."""
        self._uri = uri
        self._sink = sink
        self._wanted = fingerprint
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._seen: str | None = None
        self.size_bytes = 0

    @property
    def next_byte(self) -> int | None:
        """Position at which the next attempt begins; None for the whole object, if what was received has no version."""
        return self.size_bytes if self._seen or not self.size_bytes else None

    @property
    def info(self) -> ObjectInfo:
        """Metadata of the copied object; the fingerprint is a hash of the content if the server sends no version."""
        fingerprint = self._seen or f"http:{self.size_bytes}:sha256:{self._hash.hexdigest()}"
        return ObjectInfo(uri=self._uri, size_bytes=self.size_bytes, fingerprint=fingerprint)

    def take(self, answer: WebResponse) -> None:
        """Write the body of a response.

        Raises AttemptFailedError if it is incomplete, ObjectChangedError if it is of another version, and
        ObjectTooLargeError, whatever its header states.
        """
        self._begin(answer)
        if answer.start is not None:
            for chunk in answer.chunks():
                self._add(chunk)
        if answer.size_bytes not in {None, self.size_bytes}:
            raise AttemptFailedError(f"{self.size_bytes:,} of {answer.size_bytes:,} bytes received")
        self.info.require(fingerprint=self._wanted, max_bytes=self._max_bytes)

    def _begin(self, answer: WebResponse) -> None:
        is_resumed = self.size_bytes > 0 and answer.start != 0
        if is_resumed and (answer.start, answer.fingerprint) != (self.size_bytes, self._seen):
            raise changed(self._uri)
        if self._wanted and answer.fingerprint and answer.fingerprint != self._wanted:
            raise changed(self._uri)
        self._check_size(answer.size_bytes or 0)
        self._seen = answer.fingerprint
        if not is_resumed:
            self._restart()

    def _restart(self) -> None:
        if self._sink is not None and self.size_bytes:
            self._sink.seek(0)
            self._sink.truncate()
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def _add(self, chunk: bytes) -> None:
        self._check_size(self.size_bytes + len(chunk))
        if self._sink is not None:
            self._sink.write(chunk)
        self._hash.update(chunk)
        self.size_bytes += len(chunk)

    def _check_size(self, size_bytes: int) -> None:
        if self._max_bytes is not None and size_bytes > self._max_bytes:
            raise too_large(self._uri, self._max_bytes)


_BACKOFF_S = 0.25
_LONGEST_WAIT_S = 30
_BUSY = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
# Most bytes read to learn the length of an object whose server does not send it.
_MAX_UNSIZED_BYTES = 1024**3
_T = TypeVar("_T")


class Web:
    """Reads objects from the web servers that the settings allow.

    Only GET is used: many servers reject HEAD, as do all URLs that are signed for GET. Each response carries
    the version of the object, so that a replaced object is detected before its first byte is read.
    """

    def __init__(self, settings: WebOptions, cancellation: Cancellation) -> None:
        self._settings = settings
        self._cancellation = cancellation

    @property
    def max_wait_s(self) -> float:
        return self._settings.total_timeout_s

    def stat(self, uri: str) -> ObjectInfo:
        """Look at an object's first byte, or read all of it if there is no length or version."""

        def look(ask: Ask) -> ObjectInfo | None:
            with ask(0, 0) as answer:
                if answer.size_bytes is None or answer.fingerprint is None:
                    return None
                return ObjectInfo(uri=uri, size_bytes=answer.size_bytes, fingerprint=answer.fingerprint)

        return self._attempt(uri, look) or self._copy(uri, None, fingerprint=None, max_bytes=_MAX_UNSIZED_BYTES)

    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes:
        sink = io.BytesIO()
        self._copy(uri, sink, fingerprint=fingerprint, max_bytes=max_bytes)
        return sink.getvalue()

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        data = bytearray()

        def read_part(ask: Ask) -> bytes:
            first = start + len(data)
            with ask(first, start + size - 1) as answer:
                _take_part(answer, data, first=first, size=size, fingerprint=fingerprint)
            return bytes(data)

        return self._attempt(uri, read_part, lambda: len(data))

    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int:
        with partial_file(path) as file:
            return self._copy(uri, file, fingerprint=fingerprint, max_bytes=max_bytes).size_bytes

    def _copy(self, uri: str, sink: BinaryIO | None, *, fingerprint: str | None, max_bytes: int | None) -> ObjectInfo:
        copy = WebCopy(uri, sink, fingerprint=fingerprint, max_bytes=max_bytes)

        def resume(ask: Ask) -> ObjectInfo:
            with ask(copy.next_byte, None) as answer:
                copy.take(answer)
            return copy.info

        return self._attempt(uri, resume, lambda: copy.next_byte or 0)

    def _attempt(self, uri: str, work: Callable[[Ask], _T], progress: Callable[[], int] = lambda: 0) -> _T:
        """Retry `work` until it succeeds, with growing pauses, or those that the server requests.

        Only attempts without progress count: some servers limit the bytes of each response. A busy server is waited
        for, unless it has refused everything for `total_timeout_s` already.
        """
        settings, busy = self._settings, _connections(self._settings).busy
        until_s = time.monotonic() + settings.total_timeout_s
        reached = 0
        attempts = refusals = fresh = Retry(total=None, backoff_factor=_BACKOFF_S, backoff_jitter=_BACKOFF_S)
        while True:
            try:
                done = work(lambda first, last: self._ask(uri, first, last, until_s=until_s))
            except AttemptFailedError as error:
                if progress() > reached:
                    reached, attempts, refusals = progress(), fresh, fresh
                    busy.answers(uri)
                    continue
                if settings.max_attempts > 1 and busy.is_waited_for(uri, error.response, settings.total_timeout_s):
                    waiting = refusals = refusals.increment("GET", uri, response=error.response, error=error)
                else:
                    waiting = attempts = attempts.increment("GET", uri, response=error.response, error=error)
                    if len(attempts.history) == settings.max_attempts:
                        raise StoreUnavailableError(
                            f"{redact_uri(uri)} could not be read in {pluralize(settings.max_attempts, 'attempt')} "
                            f"({error}); try again later."
                        ) from error
                pause_s = _pause_s(waiting, error.response)
                if pause_s >= until_s - time.monotonic():
                    raise StoreUnavailableError(
                        f"{redact_uri(uri)} could not be read within web.total_timeout_s ({error}); try again later."
                    ) from error
                self._cancellation.pause(pause_s)
            else:
                busy.answers(uri)
                return done

    @contextmanager
    def _ask(self, uri: str, first: int | None, last: int | None, *, until_s: float) -> Iterator[WebResponse]:
        connections = _connections(self._settings)
        late = f"{redact_uri(uri)} took longer than web.total_timeout_s; raise it, or try again."
        requests = Requests(connections.pools, self._cancellation, Deadline(until_s, late))
        with connections.slots, open_response(requests, uri, first=first, last=last) as answer:
            yield answer


def _pause_s(retries: Retry, response: BaseHTTPResponse | None) -> float:
    limited, requested_s = retries.new(backoff_max=_LONGEST_WAIT_S, retry_after_max=_LONGEST_WAIT_S), None
    with suppress(InvalidHeader, ValueError, OverflowError):  # an invalid Retry-After
        requested_s = limited.get_retry_after(response) if response else None
    return requested_s or limited.get_backoff_time()


class _BusyServers:
    """Servers that respond that they are busy, and since when they have sent nothing else. Thread-safe."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def is_waited_for(self, uri: str, response: BaseHTTPResponse | None, longest_s: float) -> bool:
        """Return whether a response states that its server is busy, and it has not been so for too long."""
        if response is None or response.status not in _BUSY:
            return False
        now_s = time.monotonic()
        return now_s - self._since_s.setdefault(urlsplit(uri).netloc, now_s) < longest_s

    def answers(self, uri: str) -> None:
        self._since_s.pop(urlsplit(uri).netloc, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connections:
    pools: PoolManager
    slots: BoundedSemaphore
    busy: _BusyServers = field(default_factory=_BusyServers)


@once_per_process
def _connections(settings: WebOptions) -> _Connections:
    return _Connections(pools=filtered_pools(settings), slots=BoundedSemaphore(settings.max_concurrency))


def _take_part(answer: WebResponse, data: bytearray, *, first: int, size: int, fingerprint: str) -> None:
    if answer.start is None:  # past the end: such a response has no version, but it has the length
        if not fingerprint.startswith(f"http:{answer.size_bytes}:"):
            raise changed(answer.uri)
        return
    if answer.fingerprint is None or answer.start != first:
        raise RangesIgnoredError(
            f"The server of {answer.uri} does not support ranges of a version; download the whole object."
        )
    if answer.fingerprint != fingerprint:
        raise changed(answer.uri)
    expected = min(size, (answer.size_bytes or 0) - first + len(data))
    for chunk in answer.chunks():
        data += chunk[: expected - len(data)]
        if len(data) == expected:
            return
    if len(data) < expected:
        raise AttemptFailedError(f"{len(data):,} of {expected:,} bytes received")
