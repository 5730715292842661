"""One decoding process, from the side of its pool, which reads ranges of remote videos for it."""

from __future__ import annotations

import math
import os
import pickle
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reelabel.errors import (
    ConfigurationError,
    DecoderTimeoutError,
    InvalidReplyError,
    NotStartedError,
    ProcessDiedError,
    StoreUnavailableError,
    as_video_errors,
)
from reelabel.pool.fork_server import ForkServer, last_line, memory_file
from reelabel.pool.messages import OUT_OF_MEMORY, Failed, Reads, Ready, Started, Unavailable, failure
from reelabel.pool.packing import unpack
from reelabel.pool.wire import NOT_READ, READ, Channel
from reelabel.sources.sparse_file import BLOCK_BYTES, MAX_CONCURRENT_READS, ByteRange, CachedRange, read_exactly
from reelabel.waiting import LOOK_S, raise_if_abandoned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reelabel.pool.messages import Call, Open, Reply, Setup
    from reelabel.sources.sparse_file import ByteSource


_START_S = 120.0  # imports on a busy machine
_BEGIN_S = 20.0
_SOONEST_S, _LATEST_S = 0.02, LOOK_S
_STOPPED_S = 1.0  # a check this late means that this process was stopped, as by Ctrl-Z, and not merely busy
_NOTICE_S = 0.5  # until a process that dies while the pool reads for it is noticed


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Limits on the time for one video: wall-clock and CPU time for decoding, and more for reading ranges."""

    timeout_s: float
    cpu_s: float
    reading_s: float = 0.0


class DecodingProcess:
    """A process that decodes one video at a time. Used by one thread at a time, except for `kill`.

    `missing` names the layers of the sandbox that it lacks, once it is ready.
    """

    _watch: _TimeLimit

    def __init__(self, server: ForkServer, setup: Setup) -> None:
        """Fork the process, as soon as its server is ready; raise OSError, or NotStartedError if that is lost."""
        self.videos = 0
        self._max_bytes = setup.memory_bytes
        self.missing: tuple[str, ...] = ()
        self.is_ready, self._is_done = False, True
        parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._errors = memory_file("stderr")
        self._channel = Channel(parent_end)
        self._channel.watch = _until(time.monotonic() + _START_S)
        try:
            with child_end:
                self._process = server.fork(child_end.fileno(), self._errors.fileno())
        except (OSError, NotStartedError):
            self._close()
            raise
        with suppress(ProcessDiedError):  # found out by `wait_ready`
            self._channel.send(pickle.dumps(setup))

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait until it can take requests; raise ConfigurationError if it cannot, NotStartedError if it has died."""
        if self.is_ready:
            if self._channel.has_input():  # it has died
                raise NotStartedError
            return
        self._channel.watch = _until(time.monotonic() + _START_S)
        try:
            answer = self._receive(Ready, Unavailable)
        except (ProcessDiedError, InvalidReplyError):
            raise NotStartedError(last_line(self._errors.fileno())) from None
        finally:
            self._errors.close()
        if isinstance(answer, Unavailable):
            raise ConfigurationError(f"Decoding processes cannot start: {answer.message}")
        assert isinstance(answer, Ready)
        self.missing, self.is_ready = answer.missing, True

    def open(self, opening: Open, descriptor: int | None, limits: TimeLimits) -> None:
        """Have a video opened, with limits for all its calls; raise NotStartedError if the process was lost before."""
        self.videos, self._is_done = self.videos + 1, False
        self._channel.watch = _until(time.monotonic() + _BEGIN_S)
        try:
            self._channel.send(pickle.dumps(opening), descriptor)
            self._receive(Started)
        except (ProcessDiedError, InvalidReplyError):  # an earlier video may have taken it over
            raise NotStartedError from None
        self._watch = _TimeLimit(self.pid, limits)
        self._watch.pause()
        self._is_done = True

    def call(self, call: Call, kind: type, reader: RangeReader | None, *, max_bytes: int | None = None) -> Any:  # noqa: ANN401 - of the kind
        """Call a method of the decoder of the open video; `reader` reads ranges of a video without a descriptor.

        Raises ProcessDiedError, DecoderTimeoutError, InvalidReplyError if it sent something invalid, or arrays larger
        than `max_bytes` or its memory limit; else, what it reports, or what `reader` raised.
        """
        self._is_done = False
        self._watch.resume()
        self._channel.watch = self._watch
        self._channel.send(pickle.dumps(call))
        expected = (kind, Failed, Reads) if reader else (kind, Failed)
        while isinstance(reply := self._receive(*expected, max_bytes=max_bytes), Reads):
            assert reader is not None
            self._read(reply, reader)
        self._watch.pause()
        if isinstance(reply, Failed):
            read_error = reader.failure if reader else None
            error = read_error or failure(reply, bytes_fetched=reader.bytes_fetched if reader else 0)
            self._is_done = reply.code != OUT_OF_MEMORY  # it may have read a message in part
            with as_video_errors():
                raise error
        self._is_done = True
        return reply

    def close_video(self) -> None:
        """Close the video; if a call has failed, the process is not used again."""
        if not self._is_done:
            return
        self._channel.watch = _until(time.monotonic() + _BEGIN_S)
        try:
            self._channel.send(pickle.dumps(None))
        except (ProcessDiedError, NotStartedError):
            self._is_done = False

    def distrust(self) -> None:
        self._is_done = False

    def is_healthy(self) -> bool:
        """Return whether it is alive, and its last reply was valid and nothing followed it."""
        return self._is_done and not self._channel.has_input()

    def kill(self) -> None:
        """Kill it. Thread-safe."""
        self._process.kill()

    def end(self) -> int:
        """Kill it, free everything, and return its exit code."""
        self.kill()
        self._close()
        return self._process.wait()

    def _close(self) -> None:
        self._channel.close()
        self._errors.close()

    def _read(self, wanted: Reads, reader: RangeReader) -> None:
        batch = reader.start(wanted.spans)
        try:
            for number in range(len(wanted.spans)):
                while not batch.wait(number, min(self._channel.watch(), _NOTICE_S)):
                    if self._channel.has_input():  # it has died, or sends something unrequested
                        raise ProcessDiedError
                piece = reader.take(batch, number)
                self._channel.send_bytes(NOT_READ if piece is None else READ)
                if piece is None:
                    return
                self._channel.send_bytes(piece)
        finally:
            batch.stop()  # if a limit was reached, no further range is read

    def _receive(self, *kinds: type, max_bytes: int | None = None) -> Reply:
        data, descriptor = self._channel.receive()
        try:
            reply: Reply = unpack(kinds, data, descriptor, max_bytes=min(self._max_bytes, max_bytes or self._max_bytes))
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return reply


def _until(deadline_s: float) -> Callable[[], float]:
    def watch() -> float:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise NotStartedError("It does not answer.")
        return min(left_s, _LATEST_S)

    return watch


class _TimeLimit:
    """Watches the time that a process takes for one video, by clocks that it cannot change.

    Time in which this process was stopped does not count: it could not see what the other had sent.
    """

    def __init__(self, pid: int, limits: TimeLimits) -> None:
        self._clock = ~pid << 3 | 2  # the CPU time of another process: see clock_getcpuclockid(3)
        self._limits = limits
        self._cores = len(os.sched_getaffinity(0))
        self._looked_s = self._due_s = time.monotonic()
        self._deadline_s = self._looked_s + limits.timeout_s + limits.reading_s
        self._paused_s = math.inf
        self._spent_s = self._spent()

    def pause(self) -> None:
        self._paused_s = time.monotonic()

    def resume(self) -> None:
        self._looked_s = self._due_s = time.monotonic()
        self._deadline_s += self._looked_s - self._paused_s

    def __call__(self) -> float:
        """Return the seconds until the next check: no limit can be reached sooner.

        Raises DecoderTimeoutError if a limit is exceeded, and AbandonedError if nobody waits for the video any more.
        """
        raise_if_abandoned()
        now_s = time.monotonic()
        if now_s - self._due_s > _STOPPED_S:
            self._deadline_s += now_s - self._looked_s
        left_s = self._deadline_s - now_s
        if left_s <= 0:
            raise DecoderTimeoutError(
                f"Decoding took longer than {self._limits.timeout_s:g} s; "
                "raise extract.timeout_s if the video is valid."
            )
        cpu_left_s = self._limits.cpu_s - (self._spent() - self._spent_s)
        if cpu_left_s <= 0:
            raise DecoderTimeoutError(
                f"Decoding took more than {self._limits.cpu_s:g} s of CPU time; "
                "raise extract.timeout_s if the video is valid."
            )
        wait_s = max(_SOONEST_S, min(left_s, cpu_left_s / self._cores, _LATEST_S))
        self._looked_s, self._due_s = now_s, now_s + wait_s
        return wait_s

    def _spent(self) -> float:
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            raise ProcessDiedError from None


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
