"""A remote video as a seekable file that fetches only the ranges it needs."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right, insort
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from reelabel.errors import FallbackRequired
from reelabel.sources.video_file import Seekable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BLOCK_BYTES = 16 * 1024
_MEDIA_BLOCK_BYTES = 256 * 1024
_MAX_BLOCK_BYTES = 1024 * 1024
MAX_CONCURRENT_READS = 8
_MAX_READ_BYTES = 4 * 1024 * 1024  # of one request; larger ranges are read by several at once
_MAX_SHARE = 0.5
_MAX_BYTES = 256 * 1024**2  # held in memory
# Up to here, reading a whole file in ranges costs no more than a download, and needs no copy.
SMALL_BYTES = 64 * 1024**2


class ByteSource(Protocol):
    """Random access to the bytes of a video. Thread-safe."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def max_wait_s(self) -> float:
        """Seconds that all reads together may take; infinite if reads need no time limit of their own."""

    def read(self, start: int, size: int) -> bytes:
        """Read exactly `size` bytes from `start`; `size` is at least 1, and the range lies within the file."""


@runtime_checkable
class BatchSource(ByteSource, Protocol):
    """A source that reads several ranges at once by itself."""

    def read_many(self, spans: Sequence[ByteRange]) -> Iterator[bytes]:
        """Start reading ranges, and yield each as `read` returns it."""


class ByteRange(NamedTuple):
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


class CachedRange(NamedTuple):
    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


def read_ranges(source: ByteSource, spans: Sequence[ByteRange]) -> Iterator[bytes]:
    """Start reading ranges of a source concurrently; yield them in order.

    Iterating raises EOFError if the source ends early, and whatever `source.read` raises.
    """
    if isinstance(source, BatchSource):
        return source.read_many(spans)
    read = partial(read_exactly, source)
    if len(spans) == 1:
        return map(read, spans)
    threads = ThreadPoolExecutor(min(MAX_CONCURRENT_READS, len(spans)), thread_name_prefix="read-ranges")
    pieces = threads.map(read, spans)
    threads.shutdown(wait=False)  # once all is read
    return pieces


def read_exactly(source: ByteSource, span: ByteRange) -> bytes:
    data = source.read(span.start, span.size)
    if len(data) != span.size:
        raise EOFError(f"expected {span.size} bytes at {span.start}, got {len(data)}: the source ends early")
    return data


class SparseFile(Seekable):
    """A read-only binary file for `av.open` that fetches byte ranges on demand and caches them.

    Missing bytes are fetched in blocks, which grow during sequential reads. Like a raw file, a read may return less
    than asked for: it ends where the cached bytes end, so that filling a buffer fetches nothing extra. Reading most of
    the file raises FallbackRequired, as one download is then faster. `read_at` is thread-safe, so several demuxers may
    open the file. It waits for a range that is being prefetched only if it needs that range, and other threads can read
    cached bytes meanwhile.

    At most `max_bytes` are fetched. `wait_s` is the time spent waiting for the source, and `failure` the exception that
    it raised, which FFmpeg may have treated as the end of the file.
    """

    def __init__(self, source: ByteSource, known: Iterable[CachedRange] = ()) -> None:
        self.size_bytes = source.size_bytes
        self.max_bytes = min(self.size_bytes * _MAX_SHARE, _MAX_BYTES)
        self.bytes_fetched = 0
        self.wait_s = 0.0
        self.failure: Exception | None = None
        self._source = source
        self._extents = sorted(known)
        self._index: tuple[CachedRange, ...] | None = None
        self._ahead: deque[ByteRange] = deque()  # ranges that are being prefetched
        self._arriving: Iterator[bytes] = iter(())
        self._block_bytes = BLOCK_BYTES
        self._is_receiving = False  # one thread at a time receives
        self._changed = threading.Condition()

    @property
    def extents(self) -> tuple[CachedRange, ...]:
        """The cached extents, in order and without overlap, with those that are being fetched."""
        self.wait()
        return tuple(self._extents)

    @property
    def index(self) -> tuple[CachedRange, ...]:
        """The extents that were cached before media data were fetched."""
        return self.extents if self._index is None else self._index

    def end_of_header(self) -> None:
        """Treat what is fetched from now on as media data, which need not be kept for later extractions."""
        self._index = self.index

    def allow_whole_if_small(self) -> None:
        """Allow fetching all of a small file, where the alternative is to download it."""
        self.max_bytes = max(self.max_bytes, min(self.size_bytes, SMALL_BYTES))

    def read(self, size: int = -1) -> bytes:
        data = self.read_at(self._position, size)
        self._position += len(data)
        return data

    def read_at(self, position: int, size: int = -1) -> bytes:
        """Read from a position at most `size` bytes, none only at the end of the file."""
        if position >= self.size_bytes or size == 0:
            return b""
        with self._changed:
            while (extent := self._extent_at(position)) is None:
                if not self._receive_next():  # what is being fetched comes first
                    self._start_block(position)
        offset = position - extent.start
        return extent.data[offset:] if size < 0 else extent.data[offset : offset + size]

    def prefetch(self, spans: Iterable[ByteRange]) -> None:
        """Start fetching ranges concurrently, except for bytes already cached."""
        with self._changed:
            self._wait()
            gaps = merge_ranges(gap for span in sorted(spans) for gap in self._gaps(span))
            if gaps:
                self._start(list(_pieces(gaps)))

    @contextmanager
    def reading_header(self) -> Iterator[None]:
        """Read a header and an index: of a small file, all of it at once. Raises what the source has raised."""
        self.allow_whole_if_small()
        try:
            yield
            self.wait()
        except Exception as error:  # noqa: BLE001 - whatever the source raised
            raise (self.failure or error) from None
        if self.failure:
            raise self.failure

    def wait(self) -> None:
        """Wait until all that is being fetched is there; raise what the source raises."""
        with self._changed:
            self._wait()

    def _wait(self) -> None:
        while self._receive_next():
            pass

    def _extent_at(self, position: int) -> CachedRange | None:
        before = bisect_right(self._extents, position, key=lambda extent: extent.start) - 1
        if before >= 0 and position < self._extents[before].end:
            return self._extents[before]
        return None

    def _start_block(self, position: int) -> None:
        before = self._extent_at(position - 1)
        least_bytes = BLOCK_BYTES if self._index is None else _MEDIA_BLOCK_BYTES
        self._block_bytes = min(max(2 * self._block_bytes, least_bytes), _MAX_BLOCK_BYTES) if before else least_bytes
        self._start([next(self._gaps(ByteRange(position, self._block_bytes)))])

    def _gaps(self, span: ByteRange) -> Iterator[ByteRange]:
        position, end = max(0, span.start), min(span.end, self.size_bytes)
        while position < end:
            extent = self._extent_at(position)
            if extent is None:
                after = bisect_right(self._extents, position, key=lambda known: known.start)
                until = min(end, self._extents[after].start) if after < len(self._extents) else end
                yield ByteRange(position, until - position)
                position = until
            else:
                position = extent.end

    def _start(self, gaps: Sequence[ByteRange]) -> None:
        with self._waiting():
            if self.bytes_fetched + sum(gap.size for gap in gaps) > self.max_bytes:
                raise FallbackRequired("the required ranges cover most of the file")
            self._arriving = read_ranges(self._source, gaps)
        self._ahead.extend(gaps)

    def _receive_next(self) -> bool:
        """Wait for the next range that is being fetched, without the lock; return False if there is none."""
        if self._is_receiving:
            self._changed.wait()
            return True
        if not self._ahead:
            return False
        self._is_receiving = True
        self._changed.release()
        try:
            with self._waiting():
                data = next(self._arriving)
        finally:
            self._changed.acquire()
            self._is_receiving = False
            self._changed.notify_all()
        insort(self._extents, CachedRange(self._ahead.popleft().start, data), key=lambda known: known.start)
        self.bytes_fetched += len(data)
        return True

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        except Exception as error:
            self.failure = error
            self._ahead.clear()
            raise
        finally:
            self.wait_s += time.perf_counter() - started


def merge_ranges(ranges: Iterable[ByteRange], *, gap_bytes: int = 0) -> list[ByteRange]:
    """Merge ascending ranges that overlap, or are at most `gap_bytes` apart."""
    merged: list[ByteRange] = []
    for each in ranges:
        if merged and each.start <= merged[-1].end + gap_bytes:
            merged[-1] = ByteRange(merged[-1].start, max(merged[-1].end, each.end) - merged[-1].start)
        else:
            merged.append(each)
    return merged


def _pieces(gaps: Iterable[ByteRange]) -> Iterator[ByteRange]:
    for gap in gaps:
        for start in range(gap.start, gap.end, _MAX_READ_BYTES):
            yield ByteRange(start, min(_MAX_READ_BYTES, gap.end - start))
