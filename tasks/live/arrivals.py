"""What the client of a session has sent and nobody has taken yet, in order of arrival."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tasks.live.protocol import VideoDone

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.live.protocol import VideoFrame, VideoQuery


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query that has arrived.

    Attributes:
        number: Its number in the session, from 0.
        query: What is asked.
        arrived_s: When it arrived, by the monotonic clock.
    """

    number: int
    query: VideoQuery
    arrived_s: float


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """The engine was lost, and with it what it had read."""


Arrival: TypeAlias = Frame | Asked | VideoDone | ReadAgain


class Arrivals:
    """What waits to be taken. Thread-safe; only `next` and `pause` block."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._waiting: deque[Arrival] = deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, arrival: Arrival) -> Frame | None:
        """Add what has arrived; return the frame that it replaces: a newer one replaces one that still waits."""
        with self._changed:
            last = self._waiting[-1] if self._waiting else None
            replaced = last if isinstance(last, Frame) and isinstance(arrival, Frame) else None
            if replaced:
                self._waiting.pop()
            if isinstance(arrival, ReadAgain):
                self._waiting.appendleft(arrival)
            else:
                self._waiting.append(arrival)
            self._changed.notify_all()
        return replaced

    def next(self, *, is_behind: Callable[[], bool]) -> Arrival | None:
        """Wait for what comes next, and take it; None if no more is to be taken.

        A frame waits while the model is behind, unless a query comes after it, which goes first and should see it.

        Args:
            is_behind: Whether the model is behind; looked at again after `wake`.
        """
        with self._changed:
            while not self._is_closed:
                if self._waiting and (
                    not isinstance(self._waiting[0], Frame)
                    or any(isinstance(each, Asked) for each in self._waiting)
                    or not is_behind()
                ):
                    return self._waiting.popleft()
                self._changed.wait()
        return None

    def wake(self) -> None:
        """Have `next` look again."""
        with self._changed:
            self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """Wait, unless no more is to be taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, seconds)

    def close(self) -> None:
        """Have nothing more taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def left(self) -> list[Frame]:
        """Return the frames that nobody took."""
        with self._changed:
            return [each for each in self._waiting if isinstance(each, Frame)]
