"""The events of a session, numbered; the last ones are kept for a client that resumes it."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import NamedTuple

from tasks.live.events import Event, Notice

_MAX_EVENTS = 4096
_MAX_BYTES = 8 * 1024**2


class SentEvent(NamedTuple):
    seq: int
    text: str
    data: bytes = b""


class EventLog:
    def __init__(self) -> None:
        self.last_seq = 0
        self.is_closed = False
        self._events: deque[SentEvent] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()

    def send(self, event: Event, data: bytes = b"") -> None:
        """Append an event and the binary message that follows it; does nothing after `close`."""
        if self.is_closed:
            return
        text = event.model_copy(update={"seq": self.last_seq + 1}).model_dump_json()
        self.last_seq += 1  # only now: a number without its event would shift those that are sent again
        self._events.append(SentEvent(self.last_seq, text, data))
        self._bytes += len(text) + len(data)
        while len(self._events) > 1 and (len(self._events) > _MAX_EVENTS or self._bytes > _MAX_BYTES):
            dropped = self._events.popleft()
            self._bytes -= len(dropped.text) + len(dropped.data)
        self._changed.set()

    def after(self, seq: int) -> list[SentEvent]:
        before = self.last_seq - len(self._events)
        return [*islice(self._events, max(0, seq - before), None)]

    async def wait_after(self, seq: int) -> list[SentEvent]:
        """Wait for events after a number; return none once the log is closed and all were returned."""
        while self.last_seq <= seq and not self.is_closed:
            self._changed.clear()
            await self._changed.wait()
        return self.after(seq)

    def close(self) -> None:
        self.is_closed = True
        self._changed.set()


class EngineStatus:
    """Notifies the client of a session when the engine is lost, and when it answers again."""

    def __init__(self, events: EventLog) -> None:
        self.losses = 0
        self._events, self._is_lost = events, False

    def lost(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self.losses += 1
            text = "The engine crashed and is restarting. Frames are being prefilled again; queries wait."
            self._events.send(Notice(code="engine_lost", message=text))

    def back(self) -> None:
        if self._is_lost:
            self._is_lost = False
            self._events.send(Notice(code="engine_back", message="The engine answers again."))
