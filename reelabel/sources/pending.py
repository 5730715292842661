"""Reads in progress, which another thread can end when nobody waits for them any more."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, Lock
from typing import TYPE_CHECKING

from reelabel.errors import ReadingEndedError
from reelabel.waiting import go_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Takes note of a connection of a request, before something is awaited on it.
    Watch = Callable[[socket.socket], None]


class Cancellation:
    """The reads of one store that are in progress. Thread-safe; a copy in another process has none."""

    def __init__(self) -> None:
        """Start without any."""
        self._ended = Event()
        self._lock = Lock()
        self._connections: set[socket.socket] = set()

    def __reduce__(self) -> tuple[type[Cancellation], tuple[()]]:
        return Cancellation, ()

    def end(self) -> None:
        """End all reads in progress, and all that begin later."""
        self._ended.set()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):  # it is not connected any more
                    connection.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read something within the body; what a connection that was shut down seems to have said counts for nothing.

        Raises:
            ReadingEndedError: Reads have been ended.
        """
        self.check()
        try:
            yield
        finally:
            self.check()

    @contextmanager
    def requesting(self) -> Iterator[Watch]:
        """Yield what takes note of the connections of one request, from before they are made to the end of the body."""
        with ExitStack() as stack:
            yield lambda connection: self._watch(connection, stack)

    def pause(self, seconds: float) -> None:
        """Wait before another attempt.

        Raises:
            ReadingEndedError: Reads have been ended.
        """
        self._ended.wait(seconds)
        self.check()

    def check(self) -> None:
        """Raise if reads have been ended.

        Raises:
            ReadingEndedError: They have.
        """
        go_on()
        if self._ended.is_set():
            raise ReadingEndedError("Nothing more is read: what needed it has been stopped.")

    def _watch(self, connection: socket.socket, stack: ExitStack) -> None:
        # A duplicate stays valid if TLS takes the connection over, or another thread closes it.
        duplicate = stack.enter_context(socket.socket(fileno=os.dup(connection.fileno())))
        with self._lock:
            self._connections.add(duplicate)
        stack.callback(self._forget, duplicate)
        self.check()

    def _forget(self, duplicate: socket.socket) -> None:
        with self._lock:
            self._connections.discard(duplicate)
