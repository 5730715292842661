"""The moment by which a request over the web must have ended, however steadily its bytes come."""

from __future__ import annotations

import io
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

from infra.errors import StoreUnavailableError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer


@dataclass(slots=True)
class Deadline:
    """When all that is done for an object must have ended.

    Attributes:
        uri: The object, as messages show it.
        at_s: By `time.monotonic`.
    """

    uri: str
    at_s: float

    def left_s(self) -> float:
        """Give the seconds that are left, always more than 0.

        Raises:
            StoreUnavailableError: None are.
        """
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise StoreUnavailableError(f"{self.uri} took longer than web.total_timeout_s; raise it, or try again.")
        return left_s

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Make it that of the requests that begin in this thread."""
        token = _of_requests.set(self)
        try:
            yield
        finally:
            _of_requests.reset(token)


# urllib3 hands nothing of ours down to a connection and its answer.
_of_requests: ContextVar[Deadline] = ContextVar("deadline")


def deadline_of_request() -> Deadline:
    """Give the deadline of the request that this thread makes now."""
    return _of_requests.get()


class DatedResponse(HTTPResponse):
    """An answer of which every byte, of its header, too, comes before the deadline of its request."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - http.client's own
        """Read from `sock`, as it is set up."""
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_DatedReader(self.fp.detach(), sock, deadline_of_request()))


class _DatedReader(io.RawIOBase):
    """Waits for no byte longer than what is left: a socket's own timeout begins anew with each."""

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
            self._deadline.left_s()  # where none is left, that is the reason
            raise

    def close(self) -> None:
        self._raw.close()
        super().close()
