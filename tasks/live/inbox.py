"""What the client of a session has sent and has not been taken yet, in order of arrival."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from reelabel_engine.live_items import AUDIO_HZ
from tasks.live.messages import ErrorCode, VideoDone, VideoFrame, VideoQuery
from tasks.live.standing import Standing

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


# Beyond it, the connection is not read: its client is slowed by TCP, and nothing is dropped.
_FULL_BYTES = 32 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame that has arrived: its number in the session, its encoded picture, and its time by the monotonic clock."""

    number: int
    data: bytes = field(repr=False)
    announced: VideoFrame
    arrived_s: float
    received_ms: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Audio:
    """Samples that have arrived, int16 at `AUDIO_HZ`."""

    samples: npt.NDArray[np.int16] = field(repr=False)
    time_s: float | None  # when they begin, by the client's clock; None if the client does not say
    arrived_s: float

    @property
    def seconds(self) -> float:
        return len(self.samples) / AUDIO_HZ


@dataclass(slots=True, kw_only=True, eq=False)
class PendingQuery:
    """A query that has arrived, or a standing question that is asked again."""

    number: int | None  # its number in the session, from 0; None as long as its client may never learn of it
    query: VideoQuery  # what is asked
    arrived_s: float  # when it arrived, by the monotonic clock
    deadline_s: float | None = None  # when its time is over, by the monotonic clock; None if it has no end
    standing: Standing | None = None  # the standing question, if it is one
    ended_by: ErrorCode | None = None  # why it is to end before it is answered; None if it is not
    said: list[str] = field(default_factory=list)  # the pieces of the answer so far
    first_ms: float | None = None  # from its arrival to the first piece; None before that
    first_speech_ms: float | None = None  # the same of the answer in speech

    @property
    def waited_ms(self) -> float:
        return (time.monotonic() - self.arrived_s) * 1e3


Arrival: TypeAlias = Frame | Audio | PendingQuery | Standing | VideoDone


class Inbox:
    """What waits to be taken. It takes whatever it is given: who receives waits for room before the next message."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Arrival] = asyncio.Queue()
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def is_empty(self) -> bool:
        return self._waiting.empty()

    def put(self, arrival: Arrival) -> None:
        self._waiting.put_nowait(arrival)
        self._count(_size_of(arrival))

    async def get(self) -> Arrival:
        arrival = await self._waiting.get()
        self._count(-_size_of(arrival))
        return arrival

    async def wait_for_room(self) -> None:
        await self._has_room.wait()

    def _count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        (self._has_room.clear if self._bytes > _FULL_BYTES else self._has_room.set)()


def _size_of(arrival: Arrival) -> int:
    match arrival:
        case Frame():
            return len(arrival.data)
        case Audio():
            return arrival.samples.nbytes
        case _:
            return 0
