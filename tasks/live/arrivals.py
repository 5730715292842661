"""What the client of a session has sent and nobody has taken yet, in order of arrival."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tasks.live.items import AUDIO_HZ
from tasks.live.protocol import MessageRefusedError, VideoDone

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from tasks.live.protocol import VideoFrame, VideoQuery


# Audio is not dropped, so that it waits as long as the model is behind, or lost.
_MOST_AUDIO_S = 600.0


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


Arrival: TypeAlias = Frame | Audio | Asked | VideoDone | ReadAgain


class Arrivals:
    """What waits to be taken. Thread-safe; only `next` and `pause` block."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._waiting: deque[Arrival] = deque()
        self._audio_s = 0.0  # that waits
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, arrival: Arrival) -> Frame | None:
        """Add what has arrived; return the frame that it replaces: a newer one replaces one that still waits.

        Raises:
            MessageRefusedError: Too much audio waits already.
        """
        with self._changed:
            if isinstance(arrival, Audio):
                self._admit(arrival)
            replaced = self._last_frame() if isinstance(arrival, Frame) else None
            if replaced:
                self._waiting.remove(replaced)
            if isinstance(arrival, ReadAgain):
                self._waiting.appendleft(arrival)
            else:
                self._waiting.append(arrival)
            self._changed.notify_all()
        return replaced

    def _admit(self, audio: Audio) -> None:
        if self._audio_s + audio.seconds > _MOST_AUDIO_S:
            raise MessageRefusedError(
                f"{self._audio_s:,.0f} seconds of audio already wait for the model; send it as it is recorded.",
                code="audio_refused",
            )
        self._audio_s += audio.seconds

    def _last_frame(self) -> Frame | None:
        """Return the frame that waits and that nothing but audio follows."""
        last = next((each for each in reversed(self._waiting) if not isinstance(each, Audio)), None)
        return last if isinstance(last, Frame) else None

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
                    taken = self._waiting.popleft()
                    self._audio_s -= taken.seconds if isinstance(taken, Audio) else 0.0
                    return taken
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
