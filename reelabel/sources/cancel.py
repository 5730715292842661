"""Requests that another thread can cancel, and that end at a deadline, however slowly their server sends.

A socket's timeout restarts with every byte. So the sockets of a request are shut down: by `cancel`, or by a timer at
the deadline. To its reader, a socket that was shut down looks as if the server had closed it; therefore received data
counts only if `Watchdog.check` passes afterwards.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Event, Lock, Timer
from typing import TYPE_CHECKING, NamedTuple

from reelabel.errors import ReadingEndedError, StoreUnavailableError
from reelabel.waiting import LOOK_S, raise_if_abandoned

if TYPE_CHECKING:
    from collections.abc import Iterator

# Libraries have no way to pass an object to a connection.
_CURRENT: ContextVar[Watchdog | None] = ContextVar("watchdog", default=None)


class Deadline(NamedTuple):
    """The `time.monotonic` at which a request must have ended, and the message if it has not."""

    at_s: float
    message: str


class Cancellation:
    """Cancels the requests of one store. Thread-safe; a copy in another process starts anew."""

    def __init__(self) -> None:
        self._cancelled = Event()
        self._lock = Lock()
        self._requests: set[Watchdog] = set()

    def __reduce__(self) -> tuple[type[Cancellation], tuple[()]]:
        return Cancellation, ()

    def cancel(self) -> None:
        """Cancel all requests in progress, and refuse later ones."""
        self._cancelled.set()
        with self._lock:
            requests = tuple(self._requests)
        for request in requests:
            request.shut_down()

    @contextmanager
    def watching(self, deadline: Deadline | None = None) -> Iterator[Watchdog]:
        """Watch the connections that this thread uses within the body; raises as `Watchdog.check` does."""
        watchdog = Watchdog(self, deadline)
        with self._lock:
            self._requests.add(watchdog)
        token = _CURRENT.set(watchdog)
        try:
            watchdog.check()
            yield watchdog
        finally:
            _CURRENT.reset(token)
            with self._lock:
                self._requests.discard(watchdog)
            watchdog.close()
            watchdog.check()

    def pause(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self.check()
            self._cancelled.wait(min(left_s, LOOK_S))
        self.check()

    def check(self) -> None:
        """Raise ReadingEndedError if somebody has cancelled the requests."""
        raise_if_abandoned()
        if self._cancelled.is_set():
            raise ReadingEndedError("Read cancelled: what needed it has been stopped.")


class Watchdog:
    """The sockets of one request. Thread-safe."""

    def __init__(self, cancellation: Cancellation, deadline: Deadline | None) -> None:
        self.cancellation = cancellation
        self._deadline = deadline
        self._sockets: list[socket.socket] = []
        self._lock = Lock()
        self._timer: Timer | None = None
        if deadline:
            self._start_timer(deadline.at_s - time.monotonic())

    def watch(self, connection: socket.socket) -> None:
        # A duplicate stays valid if TLS takes the connection over, or another thread closes it.
        with self._lock:
            self._sockets.append(socket.socket(fileno=os.dup(connection.fileno())))
        self.check()

    def check(self) -> None:
        """Raise ReadingEndedError if the request was cancelled, StoreUnavailableError if its deadline has passed."""
        self.cancellation.check()
        if self._deadline and time.monotonic() >= self._deadline.at_s:
            raise StoreUnavailableError(self._deadline.message)

    def hasten(self, seconds: float) -> None:
        """Shut the sockets down after at most `seconds`, which `check` does not report."""
        left_s = self._deadline.at_s - time.monotonic() if self._deadline else seconds
        self._start_timer(min(left_s, seconds))

    def shut_down(self) -> None:
        with self._lock:
            for each in self._sockets:
                with suppress(OSError):  # it is not connected any more
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        with self._lock:
            for each in self._sockets:
                each.close()
            self._sockets.clear()

    def _start_timer(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = Timer(max(0.0, seconds), self.shut_down)
        self._timer.daemon = True
        self._timer.start()


def current_watchdog() -> Watchdog | None:
    """Return the watchdog of this thread's request; None outside of `Cancellation.watching`."""
    return _CURRENT.get()
