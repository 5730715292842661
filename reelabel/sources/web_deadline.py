"""Deadlines of web requests, which hold even if data keeps arriving."""

from __future__ import annotations

import io
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

from reelabel.errors import StoreUnavailableError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

    from reelabel.sources.pending import Watch


@dataclass(slots=True)
class Deadline:
    """The time by which all requests for an object must have ended.

    Attributes:
        uri: The object, as shown in messages.
        at_s: Time of the deadline, by `time.monotonic`.
        watch: Takes note of the connections of the current request.
    """

    uri: str
    at_s: float
    watch: Watch

    def left_s(self) -> float:
        """Return the seconds left, which are more than 0.

        Raises:
            StoreUnavailableError: The deadline has passed.
        """
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise StoreUnavailableError(f"{self.uri} took longer than web.total_timeout_s; raise it, or try again.")
        return left_s

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Apply the deadline to requests that this thread begins."""
        token = _of_requests.set(self)
        try:
            yield
        finally:
            _of_requests.reset(token)


# urllib3 has no way to pass an object to a connection and its response.
_of_requests: ContextVar[Deadline] = ContextVar("deadline")


def deadline_of_request() -> Deadline:
    """Return the deadline of this thread's current request."""
    return _of_requests.get()


class DatedResponse(HTTPResponse):
    """A response whose header and body are read under the deadline of its request."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - http.client's own
        """Read from `sock` under the current deadline."""
        super().__init__(sock, *arguments, **named)
        deadline = deadline_of_request()
        deadline.watch(sock)  # also of a connection that was made for an earlier request
        self.fp = io.BufferedReader(_DatedReader(self.fp.detach(), sock, deadline))


class _DatedReader(io.RawIOBase):
    """Limits each read to the time left, because a socket's timeout starts again with each read."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: Deadline) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = deadline
        self._timeout_s: float = sock.gettimeout() or 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._sock.settimeout(min(self._timeout_s, self._deadline.left_s()))
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            self._deadline.left_s()  # report a passed deadline rather than a timeout
            raise

    def close(self) -> None:
        self._raw.close()
        super().close()
