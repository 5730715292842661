"""What the client of a session has sent and nobody has taken yet, in order of arrival."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from reelabel_engine.live.items import AUDIO_HZ
from tasks.live.messages import VideoDone
from tasks.live.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from tasks.live.messages import ErrorCode, VideoFrame, VideoQuery


# Beyond it, the connection is not read: its client is slowed by TCP, and nothing is dropped.
_FULL_BYTES = 32 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame that has arrived.

    Attributes:
        number: Its number in the session, from 0.
        data: The picture, encoded.
        announced: What its client says of it.
        arrived_s: When it arrived, by the monotonic clock.
        received_ms: The same as Unix time.
    """

    number: int
    data: bytes = field(repr=False)
    announced: VideoFrame
    arrived_s: float
    received_ms: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Audio:
    """Audio that has arrived.

    Attributes:
        samples: At `AUDIO_HZ`; shape (N,), int16.
        time_s: When it begins, by its client's clock; None if its client does not say.
        arrived_s: When it arrived, by the monotonic clock.
    """

    samples: npt.NDArray[np.int16] = field(repr=False)
    time_s: float | None
    arrived_s: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / AUDIO_HZ


@dataclass(slots=True, kw_only=True, eq=False)
class Asked:
    """A query that has arrived, or a standing question that is asked again.

    Attributes:
        number: Its number in the session, from 0; None as long as its client may never be told of it.
        query: What is asked.
        arrived_s: When it arrived, by the monotonic clock.
        deadline_s: When its time is over, by the monotonic clock; None if it has no end.
        standing: The standing question, if it is one.
        ended_by: Why it is to end before it is answered; None if it is not.
        said: The pieces of the answer so far.
        first_ms: From its arrival to the first piece; None before that.
    """

    number: int | None
    query: VideoQuery
    arrived_s: float
    deadline_s: float | None = None
    standing: Standing | None = None
    ended_by: ErrorCode | None = None
    said: list[str] = field(default_factory=list)
    first_ms: float | None = None

    @property
    def waited_ms(self) -> float:
        """Milliseconds since it arrived."""
        return (time.monotonic() - self.arrived_s) * 1e3


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """The engine was lost, and with it what it had read."""


Arrival: TypeAlias = Frame | Audio | Asked | Standing | VideoDone | ReadAgain


class Arrivals:
    """What waits to be taken, in order. Thread-safe; only `next` and `pause` block."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._waiting: deque[tuple[Arrival, int]] = deque()  # and how many bytes each has
        self._bytes = 0  # that wait
        self._on_room: Callable[[], None] = lambda: None
        self._changed = threading.Condition()
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more should be received for now."""
        return self._bytes > _FULL_BYTES and not self._is_closed

    def on_room(self, call: Callable[[], None]) -> None:
        """Have `call` called when there is room again, or nothing more is taken; from any thread, and only the last."""
        self._on_room = call

    def put(self, arrival: Arrival) -> None:
        """Add what has arrived; what was read before a loss is read again first."""
        size_bytes = _size_of(arrival)
        with self._changed:
            if isinstance(arrival, ReadAgain):
                self._waiting.appendleft((arrival, size_bytes))
            else:
                self._waiting.append((arrival, size_bytes))
            self._bytes += size_bytes
            self._changed.notify_all()

    def next(self) -> Arrival | None:
        """Wait for what comes next, and take it; None if no more is to be taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            was_full = self.is_full
            taken, size_bytes = self._waiting.popleft()
            self._bytes -= size_bytes
        if was_full and not self.is_full:
            self._on_room()
        return taken

    def pause(self, seconds: float) -> None:
        """Wait, unless no more is to be taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, seconds)

    def close(self) -> None:
        """Have nothing more taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._on_room()


def _size_of(arrival: Arrival) -> int:
    match arrival:
        case Frame():
            return len(arrival.data)
        case Audio():
            return arrival.samples.nbytes
        case _:
            return 0
