"""Connections that would hold the service up: that say nothing, do not read, or whose handshake never ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

# Of what was sent to a client that does not read. Messages wait for it, but the answers to its pings do not.
_MOST_UNREAD_BYTES = 16 * 1024**2
_HEAD, _HANDSHAKE, _READING = "the head of a request", "a handshake", "a client that reads the rest"


class Sweeper:
    """Ends such connections; of the thread of their event loop."""

    def __init__(self, *, silence_s: float) -> None:
        """Start with none.

        Args:
            silence_s: Seconds for which a connection may wait for one thing.
        """
        self._silence_s = silence_s
        self._waits: dict[Any, tuple[object, float]] = {}  # what each waits for, and since when

    def sweep(self, connections: Iterable[Any]) -> None:
        """Look at all connections, which are uvicorn's protocols."""
        now_s, before, self._waits = time.monotonic(), self._waits, {}
        for connection in list(connections):
            transport, waits_for = connection.transport, _waits_for(connection)
            if transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
                transport.abort()
            if waits_for is None:
                continue
            last, since_s = before.get(connection, (None, now_s))
            self._waits[connection] = waits_for, since_s if waits_for is last else now_s
            if waits_for is last and now_s - since_s > self._silence_s:
                transport.abort() if waits_for is _READING else transport.close()


def _waits_for(connection: Any) -> object | None:  # noqa: ANN401 - a protocol of uvicorn's
    """Return what a connection waits for, the same object each time; None while it has a request, or is a WebSocket."""
    if connection.transport.is_closing():
        return _READING
    if not hasattr(connection, "cycle"):
        # Its parser leaves a handshake that it does not take, such as one with a line of more than 8 KiB, unanswered.
        return None if getattr(connection, "handshake_complete", True) else _HANDSHAKE
    cycle: Any = connection.cycle
    if cycle is None:
        return _HEAD
    return cycle if cycle.response_complete else None  # the next head, or the rest of a body that nobody reads
