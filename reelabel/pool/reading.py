"""Reading ranges of a video for a decoding process, which cannot reach any server itself."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from reelabel.errors import StoreUnavailableError
from reelabel.pool.faults import InvalidAnswerError
from reelabel.sources.sparse_file import BLOCK_BYTES, MAX_CONCURRENT_READS, ByteRange, CachedRange, read_exactly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.sources.sparse_file import ByteSource
    from reelabel.strategies.keyframe_table import SavedIndex

_SPARE_READS = 1024  # beyond one for each block of the file: ranges between known ones may be smaller


class RangeReader:
    """Reads ranges of one video, at most each byte once.

    Attributes:
        extents: What has been read to be kept, in order.
        failure: Why a read failed; None if none has.
        wait_s: Seconds spent reading.
        bytes_fetched: Bytes read.
    """

    def __init__(self, source: ByteSource) -> None:
        """Open a source; nothing is read yet."""
        self.extents: list[CachedRange] = []
        self.failure: Exception | None = None
        self.wait_s = 0.0
        self.bytes_fetched = 0
        self._source = source
        self._reads_left = source.size_bytes // BLOCK_BYTES + _SPARE_READS
        self._bytes_left = source.size_bytes

    def start(self, spans: Sequence[tuple[int, int]], *, is_kept: bool = True) -> Batch:
        """Start reading ranges concurrently.

        Raises:
            InvalidAnswerError: They lie outside the file, or more is asked for than the file holds.
        """
        wanted = [ByteRange(*span) for span in spans]
        self._reads_left -= len(wanted)
        self._bytes_left -= sum(span.size for span in wanted)
        if self._reads_left < 0 or self._bytes_left < 0 or any(span.end > self._source.size_bytes for span in wanted):
            raise InvalidAnswerError("reads outside the video, or more often than it has bytes")
        return Batch(self._source, wanted, is_kept=is_kept)

    def finish(self, batch: Batch) -> list[bytes] | None:
        """Take over what a finished batch has read; None if it has failed, or its source is too slow."""
        self.wait_s += batch.ended_s - batch.started_s
        if batch.failure is None and self.wait_s > self._source.max_wait_s:
            # Before the decoding time limit, which would blame the video for a slow store.
            batch.failure = StoreUnavailableError(
                f"Range requests are too slow: {self.wait_s:.0f} s for {self.bytes_fetched:,} bytes; "
                "check the store, or raise its timeouts."
            )
        self.failure = self.failure or batch.failure
        if self.failure:
            return None
        extents = batch.extents()
        self.bytes_fetched += sum(len(extent.data) for extent in extents)
        self.extents += extents if batch.is_kept else ()
        return [extent.data for extent in extents]

    def index(self, known: SavedIndex, reads: int) -> tuple[CachedRange, ...]:
        """Return the known extents and the first ones that were read.

        Raises:
            InvalidAnswerError: Fewer were read.
        """
        if reads > len(self.extents):
            raise InvalidAnswerError("an index of ranges that were not read")
        return tuple(sorted([*(known if isinstance(known, tuple) else ()), *self.extents[:reads]]))


class Batch:
    """Ranges that are being read by threads of their own.

    They are daemons: a read that never ends must not keep the program from ending.

    Attributes:
        is_kept: Whether what is read is kept.
        done: Set once all are read, or one has failed.
        failure: Why one failed.
        started_s: When reading began.
        ended_s: When it ended.
    """

    def __init__(self, source: ByteSource, spans: Sequence[ByteRange], *, is_kept: bool) -> None:
        """Start reading."""
        self.is_kept = is_kept
        self.done = threading.Event()
        self.failure: Exception | None = None
        self.started_s = self.ended_s = time.monotonic()
        self._source = source
        self._spans = spans
        self._pieces: dict[int, bytes] = {}
        self._waiting = iter(range(len(spans)))
        self._lock = threading.Lock()
        for _ in range(min(MAX_CONCURRENT_READS, len(spans))):
            threading.Thread(target=self._work, name="read-ranges", daemon=True).start()

    def extents(self) -> list[CachedRange]:
        """Return what was read, in order."""
        return [CachedRange(span.start, self._pieces[number]) for number, span in enumerate(self._spans)]

    def _work(self) -> None:
        while not self.done.is_set():
            with self._lock:
                number = next(self._waiting, None)
            if number is None:
                return
            try:
                piece = read_exactly(self._source, self._spans[number])
            except Exception as error:  # noqa: BLE001 - whatever a source raises is raised again by the caller
                self._end(error)
                return
            with self._lock:
                self._pieces[number] = piece
                is_last = len(self._pieces) == len(self._spans)
            if is_last:
                self._end(None)

    def _end(self, failure: Exception | None) -> None:
        with self._lock:
            if not self.done.is_set():
                self.failure, self.ended_s = failure, time.monotonic()
                self.done.set()
