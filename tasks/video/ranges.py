"""A remote video as a file of which only parts are fetched."""

from __future__ import annotations

import io
import time
from bisect import bisect_right, insort
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol

from infra.errors import StoreUnavailableError
from tasks.video.misled import MisledError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tasks.video.table import KnownIndex

BLOCK_BYTES = 16 * 1024
_MOST_BLOCK_BYTES = 1024 * 1024
_REQUESTS_AT_ONCE = 8
_MOST_SHARE = 0.5


class ByteSource(Protocol):
    """Bytes that can be read in parts, from any thread; it pickles."""

    @property
    def size_bytes(self) -> int:
        """Length of the whole."""

    @property
    def patience_s(self) -> float:
        """Seconds that reads may take, one of them or all together."""

    def read(self, start: int, size: int) -> bytes:
        """Read a part; `size` is at least 1, and the part lies within the whole."""


class Span(NamedTuple):
    """A part of a file."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """Position behind its last byte."""
        return self.start + self.size


class Extent(NamedTuple):
    """A part of a file, and its bytes."""

    start: int
    data: bytes

    @property
    def end(self) -> int:
        """Position behind its last byte."""
        return self.start + len(self.data)


class SparseFile:
    """A read-only binary file, as `av.open` takes them, that keeps what it has fetched.

    What is missing is fetched in blocks, which grow while they are read in sequence. A read ends
    where the fetched bytes end, as raw files may, so that a buffer is not filled with what nobody
    asked for. Whoever would read most of the file is misled: one download is faster.

    Attributes:
        size_bytes: Length of the whole.
        bytes_fetched: Bytes that came from the source.
        wait_s: Seconds spent waiting for them.
        failure: What the source raised; FFmpeg may have taken it for the end of the file.
        index: What tells where the keyframes are; set by who learns it.
    """

    def __init__(self, source: ByteSource, known: Iterable[Extent] = ()) -> None:
        """Keep the source, and extents of it that are known already."""
        self.size_bytes = source.size_bytes
        self.bytes_fetched = 0
        self.wait_s = 0.0
        self.failure: Exception | None = None
        self.index: KnownIndex = ()
        self._source = source
        self._extents = sorted(known)
        self._position = 0
        self._block_bytes = BLOCK_BYTES

    @property
    def extents(self) -> tuple[Extent, ...]:
        """What is known of the file, in order; no two overlap."""
        return tuple(self._extents)

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; none only at the end."""
        if self._position >= self.size_bytes or size == 0:
            return b""
        extent = self._extent_at(self._position) or self._fetch_block()
        offset = self._position - extent.start
        data = extent.data[offset:] if size < 0 else extent.data[offset : offset + size]
        self._position += len(data)
        return data

    def read_span(self, span: Span) -> bytes:
        """Read a part whole, as far as the file goes."""
        self.seek(span.start)
        pieces = io.BytesIO()
        while pieces.tell() < span.size and (piece := self.read(span.size - pieces.tell())):
            pieces.write(piece)
        return pieces.getvalue()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, as files do."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Give the position of the next byte."""
        return self._position

    def seekable(self) -> bool:
        """Say that positions can be chosen."""
        return True

    def prefetch(self, spans: Iterable[Span]) -> None:
        """Fetch parts side by side, those already known excepted."""
        gaps = _joined(gap for span in sorted(spans) for gap in self._gaps(span))
        if len(gaps) == 1:
            self._fetch(gaps)
        elif gaps:
            with ThreadPoolExecutor(min(_REQUESTS_AT_ONCE, len(gaps))) as threads:
                self._fetch(gaps, threads)

    def _extent_at(self, position: int) -> Extent | None:
        before = bisect_right(self._extents, position, key=lambda extent: extent.start) - 1
        if before >= 0 and position < self._extents[before].end:
            return self._extents[before]
        return None

    def _fetch_block(self) -> Extent:
        before = self._extent_at(self._position - 1)
        self._block_bytes = min(2 * self._block_bytes, _MOST_BLOCK_BYTES) if before else BLOCK_BYTES
        gap = next(self._gaps(Span(self._position, self._block_bytes)))
        return self._fetch([gap])[0]

    def _gaps(self, span: Span) -> Iterator[Span]:
        """Give what is not known of a part."""
        position, end = max(0, span.start), min(span.end, self.size_bytes)
        while position < end:
            extent = self._extent_at(position)
            if extent is None:
                after = bisect_right(self._extents, position, key=lambda known: known.start)
                until = min(end, self._extents[after].start) if after < len(self._extents) else end
                yield Span(position, until - position)
                position = until
            else:
                position = extent.end

    def _fetch(self, gaps: Sequence[Span], threads: ThreadPoolExecutor | None = None) -> list[Extent]:
        started = time.perf_counter()
        apply = threads.map if threads else map
        try:
            self._require_small(gaps)
            self._require_patience()
            extents = list(apply(self._read, gaps))
        except Exception as error:
            self.failure = error
            raise
        finally:
            self.wait_s += time.perf_counter() - started
        for extent in extents:
            insort(self._extents, extent, key=lambda known: known.start)
            self.bytes_fetched += len(extent.data)
        return extents

    def _require_small(self, gaps: Sequence[Span]) -> None:
        if self.bytes_fetched + sum(gap.size for gap in gaps) > _MOST_SHARE * self.size_bytes:
            raise MisledError("its parts would add up to most of the file")

    def _require_patience(self) -> None:
        """Give a store up before the decoder's time is over, which would be taken for the video's fault."""
        if self.wait_s > self._source.patience_s:
            raise StoreUnavailableError(
                f"Its parts came too slowly: {self.wait_s:.0f} s for {self.bytes_fetched:,} bytes; "
                "look at the store, or raise its timeouts.",
            )

    def _read(self, gap: Span) -> Extent:
        data = self._source.read(gap.start, gap.size)
        if len(data) != gap.size:
            raise EOFError(f"{len(data)} of {gap.size} bytes at {gap.start}: the source ends early")
        return Extent(gap.start, data)


def _joined(gaps: Iterable[Span]) -> list[Span]:
    """Fetch gaps that touch or overlap as one."""
    joined: list[Span] = []
    for gap in gaps:
        if joined and gap.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, gap.end) - joined[-1].start)
        else:
            joined.append(gap)
    return joined
