"""The events of a session, in order and numbered, kept for a client that comes back."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.live.messages import Event

_MAX_EVENTS = 4096
_MAX_BYTES = 8 * 1024**2


class Sent(NamedTuple):
    """An event as it is sent.

    Attributes:
        seq: Its number.
        text: The event as JSON.
        data: The binary message that follows, if it announces one.
    """

    seq: int
    text: str
    data: bytes = b""


class Outbox:
    """Events of one session; the last ones are kept. Thread-safe.

    Attributes:
        last_seq: Number of the last event; 0 if there is none.
        is_closed: Whether no event follows.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.last_seq = 0
        self.is_closed = False
        self._events: deque[Sent] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._wake: Callable[[], None] | None = None

    def put(self, event: Event, data: bytes = b"") -> None:
        """Number an event, and wake whoever sends; none follows the last.

        Args:
            event: The event.
            data: A binary message that follows it.
        """
        with self._lock:
            if self.is_closed:
                return
            self.last_seq += 1
            text = event.model_copy(update={"seq": self.last_seq}).model_dump_json()
            self._events.append(Sent(self.last_seq, text, data))
            self._bytes += len(text) + len(data)
            while len(self._events) > _MAX_EVENTS or self._bytes > _MAX_BYTES:
                dropped = self._events.popleft()
                self._bytes -= len(dropped.text) + len(dropped.data)
            wake = self._wake
        if wake:
            wake()

    def after(self, seq: int) -> list[Sent]:
        """Return the events after a number that are still kept."""
        with self._lock:
            first = self.last_seq - len(self._events)
            start = max(0, seq - first)
            return [self._events[position] for position in range(start, len(self._events))]

    def watch(self, wake: Callable[[], None] | None) -> None:
        """Have something called after each event; it must not block. What was called before is called once more."""
        with self._lock:
            before, self._wake = self._wake, wake
        for each in (before, wake):
            if each:
                each()

    def close(self) -> None:
        """No event follows."""
        with self._lock:
            self.is_closed = True
            wake = self._wake
        if wake:
            wake()
