"""Streams of `/v1/analyze`: state that carries over between parts of a film, each a separate request."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tasks.description.described import DescribedVideo
    from tasks.description.scenes.change import Average

_MS = 1000
_MAX_STREAMS = 1_024  # the most recent
# Version and segment of a video.
Part: TypeAlias = tuple[str, float | None, float | None]


class StreamPosition(NamedTuple):
    """The start of a part of a stream."""

    chunk: int = 0  # number of its first chunk
    start_s: float = 0.0  # since the beginning of the stream
    # Moving average of the embeddings so far; the time of its last frame is relative to this position.
    average: Average | None = None

    def average_at(self, start_ms: int) -> Average | None:
        """Return the average on the clock of a part that starts at a given time."""
        return self.average and self.average._replace(last_ms=self.average.last_ms + start_ms)

    def after(self, part: DescribedVideo) -> StreamPosition:
        average, end_s = part.changes.average or self.average, (part.job.start_s or 0.0) + part.duration_s
        return StreamPosition(
            self.chunk + len(part.description.chunks),
            self.start_s + part.duration_s,
            average and average._replace(last_ms=average.last_ms - round(end_s * _MS)),
        )


BEGINNING = StreamPosition()


class StreamState(NamedTuple):
    """A stream after some parts."""

    parts: int = 0  # how often one was described; one that was resent counts again
    position: StreamPosition = BEGINNING  # start of the next part
    last: Part | None = None  # which is resent if its answer was lost
    before_last: StreamPosition = BEGINNING  # start of the last part


class Streams:
    """The most recently used streams, shared by the replicas of a service. Thread-safe."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, StreamState] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, stream_id: str) -> StreamState:
        with self._lock:
            return self._states.get(stream_id, StreamState())

    def advance(self, stream_id: str, state: StreamState) -> bool:
        """Replace a stream's state after a part; return False if another part was described meanwhile."""
        with self._lock:
            if self._states.get(stream_id, StreamState()).parts != state.parts - 1:
                return False
            self._states[stream_id] = state
            self._states.move_to_end(stream_id)
            if len(self._states) > _MAX_STREAMS:
                self._states.popitem(last=False)
            return True
