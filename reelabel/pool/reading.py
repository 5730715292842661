"""Reads ranges of a video for a decoding process, which cannot reach any server itself."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from reelabel.errors import InvalidReplyError, StoreUnavailableError
from reelabel.sources.sparse_file import BLOCK_BYTES, MAX_CONCURRENT_READS, ByteRange, CachedRange, read_exactly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.sources.sparse_file import ByteSource

_MOST_BYTES = 272 * 1024**2  # more than a sparse file fetches; all of it may wait here for the process
_SPARE_READS = 1024  # beyond one for each block of the file: ranges between known ones may be smaller


class RangeReader:
    """Reads ranges of one video, at most each byte once; `header` are those read while `is_in_header`, in order."""

    def __init__(self, source: ByteSource) -> None:
        self.header: list[CachedRange] = []
        self.is_in_header = True
        self.failure: Exception | None = None
        self.wait_s = 0.0
        self.bytes_fetched = 0
        self._source = source
        self._reads_left = source.size_bytes // BLOCK_BYTES + _SPARE_READS
        self._bytes_left = min(source.size_bytes, _MOST_BYTES)

    def start(self, spans: Sequence[tuple[int, int]]) -> Batch:
        """Start reading ranges concurrently; raise InvalidReplyError if they exceed the file, or the limit in all."""
        wanted = [ByteRange(*span) for span in spans]
        self._reads_left -= len(wanted)
        self._bytes_left -= sum(span.size for span in wanted)
        if self._reads_left < 0 or self._bytes_left < 0 or any(span.end > self._source.size_bytes for span in wanted):
            raise InvalidReplyError("reads outside the video, or more often than it has bytes")
        return Batch(self._source, wanted)

    def take(self, batch: Batch, number: int) -> bytes | None:
        """Take the next range of a batch; None if one has failed, or the source is too slow."""
        self.wait_s += batch.waited_s()
        if batch.failure is None and self.wait_s > self._source.max_wait_s:
            # Before the decoding time limit, which would blame the video for a slow store.
            batch.failure = StoreUnavailableError(
                f"Range requests are too slow: {self.wait_s:.0f} s for {self.bytes_fetched:,} bytes; "
                "check the store, or raise its timeouts."
            )
        self.failure = self.failure or batch.failure
        if self.failure:
            return None
        extent = batch.take(number)
        self.bytes_fetched += len(extent.data)
        if self.is_in_header:
            self.header.append(extent)
        return extent.data


class Batch:
    """Ranges that are being read by threads of their own.

    They are daemons: a read that never ends must not keep the program from ending.
    """

    def __init__(self, source: ByteSource, spans: Sequence[ByteRange]) -> None:
        self.failure: Exception | None = None
        self._source = source
        self._spans = spans
        self._pieces: dict[int, bytes] = {}
        self._waiting = iter(range(len(spans)))
        self._unread = len(spans)
        self._changed = threading.Condition()
        self._noted_s = time.monotonic()
        self._ended_s = math.inf
        for _ in range(min(MAX_CONCURRENT_READS, len(spans))):
            threading.Thread(target=self._work, name="read-ranges", daemon=True).start()

    def wait(self, number: int, timeout_s: float) -> bool:
        """Wait until a range is read, or one has failed; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: number in self._pieces or self.failure is not None, timeout_s)

    def take(self, number: int) -> CachedRange:
        """Return a range that was read, and forget it."""
        with self._changed:
            return CachedRange(self._spans[number].start, self._pieces.pop(number))

    def waited_s(self) -> float:
        """Return the seconds spent reading since the last call."""
        until_s = min(time.monotonic(), self._ended_s)
        waited_s, self._noted_s = max(0.0, until_s - self._noted_s), max(until_s, self._noted_s)
        return waited_s

    def stop(self) -> None:
        with self._changed:
            self._waiting = iter(())

    def _work(self) -> None:
        while True:
            with self._changed:
                number = next(self._waiting, None)
            if number is None:
                return
            try:
                self._add(number, read_exactly(self._source, self._spans[number]))
            except Exception as error:  # noqa: BLE001 - whatever a source raises is raised again by the caller
                self._fail(error)
                return

    def _add(self, number: int, piece: bytes) -> None:
        with self._changed:
            self._pieces[number] = piece
            self._unread -= 1
            if not self._unread:
                self._ended_s = time.monotonic()
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self.failure = self.failure or error
            self._waiting = iter(())
            self._ended_s = min(self._ended_s, time.monotonic())
            self._changed.notify_all()
