"""The messages of a client that wait to be processed, in order of arrival."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from reelabel_engine.live_items import AUDIO_HZ
from tasks.live.messages import VideoDone, VideoFrame
from tasks.live.pending import PendingQuery, Standing

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Beyond it, the connection is not read: TCP slows the client, and nothing is dropped.
_FULL_BYTES = 32 * 1024**2
_LEAST_BYTES = 1024  # counted for a message, however short


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame that has arrived."""

    number: int  # in the session, from 0
    data: bytes = field(repr=False)  # the encoded picture
    announced: VideoFrame  # without its data
    arrived_s: float  # on the monotonic clock
    received_ms: float  # since 1970


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Audio:
    """Samples that have arrived, int16 at `AUDIO_HZ`."""

    samples: npt.NDArray[np.int16] = field(repr=False)
    time_s: float | None  # of the first sample, on the client's clock; None if the client does not say
    arrived_s: float  # of the last one, on the monotonic clock

    @property
    def seconds(self) -> float:
        return len(self.samples) / AUDIO_HZ


Arrival: TypeAlias = Frame | Audio | PendingQuery | Standing | VideoDone


class Inbox:
    """A queue without a limit of its own: the sender waits for room before it puts in the next message."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Arrival] = asyncio.Queue()
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()

    def put(self, arrival: Arrival) -> None:
        self._queue.put_nowait(arrival)
        self._count(_size_of(arrival))

    async def get(self) -> Arrival:
        arrival = await self._queue.get()
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
            return max(_LEAST_BYTES, len(arrival.data))
        case Audio():
            return max(_LEAST_BYTES, arrival.samples.nbytes)
        case _:
            return _LEAST_BYTES
