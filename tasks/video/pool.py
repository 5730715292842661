"""Decoding in disposable processes: a video that crashes or hangs its decoder fails alone."""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import signal
import threading
import time
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pebble import ProcessExpired, ProcessPool

from infra.errors import (
    DecoderCrashedError,
    DecodersLostError,
    DecoderTimeoutError,
)
from tasks.domain.segment import WHOLE
from tasks.video.extract import extract_by_ranges, extract_keyframes
from tasks.video.handover import pack, unpack
from tasks.video.unreadable import decoding_errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from pebble import ProcessFuture

    from tasks.domain import Sampling, Segment
    from tasks.video.handover import Parcel
    from tasks.video.keyframes import Keyframes
    from tasks.video.limits import Limits
    from tasks.video.ranges import ByteSource
    from tasks.video.table import KnownIndex

T = TypeVar("T")

# A child may also be killed from outside, by the kernel short of memory: one more try tells.
_ATTEMPTS = 2
_REPLACEMENTS = 10
_LOOK_S = 5.0
# Longer than a child takes to start on a busy machine, and than Pebble waits for a lock that a dead one held.
_STUCK_S = 180.0


class DecodePool:
    """A pool of decoding processes; safe to call from many threads.

    A child that dies or exceeds its time is replaced, and the pool goes on; a video on which a child
    died is tried once more.
    """

    def __init__(
        self, *, processes: int, timeout_s: float, memory_mib: int, cpu_s: int = 120, threads: int = 1
    ) -> None:
        """Start the processes.

        Args:
            processes: Videos decoded at once.
            timeout_s: Seconds one video may take.
            memory_mib: Address space of one child, in MiB.
            cpu_s: Seconds of a processor that one video may take, whatever the clock says.
            threads: Keyframes of one video decoded at once.
        """
        self._threads = threads
        self._cpu_s = cpu_s
        self._timeout_s = timeout_s
        self._processes = processes
        self._memory_mib = memory_mib
        self._replacing = threading.Lock()
        self._is_closed = False
        self._waited_for: set[Future[Any]] = set()
        self._moved_s = time.monotonic()
        self._pool = self._make_pool()

    def __enter__(self) -> Self:
        """Give the pool itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every child."""
        self.close()

    def extract(
        self,
        path: Path,
        *,
        sampling: Sampling,
        limits: Limits,
        native: bool = False,
        every: bool = False,
        segment: Segment = WHOLE,
    ) -> Keyframes:
        """Run `extract_keyframes` in a child.

        Raises:
            VideoError: As `extract_keyframes` does; also DecoderCrashedError and DecoderTimeoutError.
            DecodersLostError: Children are killed faster than they can be started.
        """
        wanted: dict[str, Any] = {"sampling": sampling, "limits": limits, "native": native, "every": every}
        return unpack(self._run(_extract, path, **wanted, segment=segment, threads=self._threads))

    def extract_by_ranges(
        self,
        source: ByteSource,
        *,
        sampling: Sampling,
        limits: Limits,
        known: KnownIndex = (),
        segment: Segment = WHOLE,
    ) -> tuple[Keyframes, KnownIndex]:
        """Run `extract_by_ranges` in a child, which reads `source` itself.

        Raises:
            MisledError: Parts are not enough; get the whole file.
            VideoError: As for `extract`.
            DecodersLostError: As for `extract`.
            ReelabelError: What `source.read` raises.
        """
        wanted: dict[str, Any] = {"sampling": sampling, "limits": limits, "known": known, "segment": segment}
        patience_s = 2 * source.patience_s  # all its reads, and the one that is then given up
        if math.isinf(patience_s):
            patience_s = 0.0  # reads of files and of memory are part of the decoding's own time
        keyframes, index = self._run(_extract_by_ranges, source, patience_s=patience_s, **wanted, threads=self._threads)
        return unpack(keyframes), index

    def close(self) -> None:
        """End every child, at work or not; threads that come later get a RuntimeError, and start none anew."""
        with self._replacing:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        for future in tuple(self._waited_for):  # Pebble would leave their threads waiting for ever
            future.cancel()
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()

    def _run(self, function: Callable[..., T], *arguments: Any, patience_s: float = 0.0, **named: Any) -> T:  # noqa: ANN401
        deaths = replaced = 0
        while True:
            try:
                result = self._await(self._schedule(function, arguments, named, patience_s), patience_s)
            except FutureTimeoutError:
                raise DecoderTimeoutError(
                    f"Decoding took longer than {self._timeout_s:g} s; raise extract.timeout_s if the video is good.",
                ) from None
            except ProcessExpired as error:
                if error.exitcode == -signal.SIGXCPU:
                    raise DecoderTimeoutError(
                        f"Decoding took more than {self._cpu_s} s of a processor; "
                        "raise extract.max_cpu_s if the video is good.",
                    ) from None
                deaths += 1
                if deaths == _ATTEMPTS:
                    raise DecoderCrashedError(
                        f"The decoding process died twice (exit code {error.exitcode}); the video is probably damaged.",
                    ) from None
            except (BrokenProcessPool, CancelledError):
                # Children died idle, or another thread replaced the pool: no fault of this video.
                replaced += 1
                if replaced == _REPLACEMENTS:
                    raise DecodersLostError(
                        "Decoding processes are killed again and again; does the machine run out of memory?",
                    ) from None
            else:
                return result

    def _schedule(
        self,
        function: Callable[..., T],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        patience_s: float,
    ) -> ProcessFuture[T]:
        with self._replacing:
            if self._is_closed:
                raise RuntimeError("The pool of decoding processes is closed.")
            # A pool gives up when its idle children are killed.
            if not self._pool.active:
                self._end()
                self._pool = self._make_pool()
            call = [function, self._cpu_s, *arguments]
            future = self._pool.schedule(_explained, args=call, kwargs=named, timeout=self._timeout_s + patience_s)
            if not self._waited_for:
                self._moved_s = time.monotonic()
            self._waited_for.add(future)
            future.add_done_callback(self._note_end)
            return future

    def _note_end(self, future: Future[Any]) -> None:
        self._waited_for.discard(future)
        self._moved_s = time.monotonic()

    def _await(self, future: ProcessFuture[T], patience_s: float) -> T:
        """Wait for a call; where none has ended for longer than any may take, it goes to new processes.

        A child that was killed at a bad moment was seen to leave Pebble waiting for it without end.
        """
        longest_s = self._timeout_s + patience_s + _STUCK_S
        while True:
            try:
                return future.result(_LOOK_S)
            except FutureTimeoutError:
                if future.done():  # its own error, or it has ended just now
                    return future.result()
            if time.monotonic() - self._moved_s > longest_s:
                self._replace_stuck(future)

    def _replace_stuck(self, future: Future[Any]) -> None:
        with self._replacing:
            if not self._is_closed and not future.done():  # else another thread was first
                self._end()
                self._pool = self._make_pool()

    def _make_pool(self) -> ProcessPool:
        pool = ProcessPool(
            max_workers=self._processes,
            context=multiprocessing.get_context("spawn"),
            initializer=_become_disposable,
            initargs=[self._memory_mib],
        )
        # Threads and processes inherit what is blocked: no child hears a Ctrl-C while it starts. The
        # tracker comes first, for its own start would unblock the signal again.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            assert pool.active  # looking starts it
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pool


def _extract(path: Path, **wanted: Any) -> Parcel | Keyframes:  # noqa: ANN401
    return pack(extract_keyframes(path, **wanted))


def _extract_by_ranges(source: ByteSource, **wanted: Any) -> tuple[Parcel | Keyframes, KnownIndex]:  # noqa: ANN401
    keyframes, index = extract_by_ranges(source, **wanted)
    return pack(keyframes), index


def _explained(function: Callable[..., T], cpu_s: int, /, *arguments: Any, **named: Any) -> T:  # noqa: ANN401
    """Call a function in the child; what it raises becomes the video's own error."""
    # The kernel counts from the child's birth, and each video gets its own share.
    spent_s = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _limit(resource.RLIMIT_CPU, math.ceil(spent_s) + cpu_s)
    with decoding_errors():
        try:
            return function(*arguments, **named)
        except MemoryError:
            raise DecoderCrashedError(
                "Decoding needed more memory than extract.memory_mib; raise it if the video is good.",
            ) from None


def _become_disposable(memory_mib: int) -> None:
    """Prepare a child: limited memory, deaf to Ctrl-C, gone with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The kernel's own signal at a parent's death comes at the end of the parent's *thread*.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit(resource.RLIMIT_AS, memory_mib * 1024**2)


def _limit(what: int, wanted: int) -> None:
    """Limit this process, to no more than its user may have."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
