"""A pool of disposable decoding processes: a video that crashes or hangs its decoder fails alone."""

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

from reelabel.errors import DecoderCrashedError, DecodersLostError, DecoderTimeoutError
from reelabel.extract import extract_keyframes, extract_keyframes_by_ranges
from reelabel.fast_path import as_video_errors
from reelabel.pool.shm_transfer import from_shared_memory, to_shared_memory
from reelabel.segment import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from pebble import ProcessFuture

    from reelabel.limits import Limits
    from reelabel.pool.shm_transfer import SharedFrames
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from reelabel.sources.sparse_file import ByteSource
    from reelabel.strategies.keyframe_table import SavedIndex

T = TypeVar("T")

_MAX_THREADS = 8  # for the usual sixteen frames, more are not worth their memory
# A process may also be killed from outside, such as by the OOM killer; a second attempt tells the cases apart.
_ATTEMPTS = 2
_REPLACEMENTS = 10
_POLL_S = 5.0
# Longer than a process takes to start on a busy machine, and than Pebble waits for a lock held by a dead one.
_STUCK_S = 180.0


class DecodePool:
    """A pool of decoding processes. Thread-safe.

    A process that dies or exceeds its time limit is replaced. A video whose process died is retried once.
    """

    def __init__(
        self,
        *,
        processes: int = 1,
        timeout_s: float = 60.0,
        memory_mib: int = 4096,
        cpu_s: int = 120,
        threads: int | None = None,
    ) -> None:
        """Start the processes.

        Args:
            processes: Videos decoded at once.
            timeout_s: Wall-clock limit per video, in seconds.
            memory_mib: Address space limit per process, in MiB.
            cpu_s: CPU time limit per video, in seconds.
            threads: Decoding threads per video; None divides the cores among the processes.
        """
        self._threads = threads or max(1, min(_MAX_THREADS, len(os.sched_getaffinity(0)) // processes))
        self._cpu_s = cpu_s
        self._timeout_s = timeout_s
        self._processes = processes
        self._memory_mib = memory_mib
        self._replacing = threading.Lock()
        self._is_closed = False
        self._running: set[Future[Any]] = set()
        self._progressed_s = time.monotonic()
        self._pool = self._make_pool()

    def __enter__(self) -> Self:
        """Return the pool itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop all processes."""
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
    ) -> SampledFrames:
        """Run `extract_keyframes` in a decoding process.

        Raises:
            VideoError: As `extract_keyframes` does; also DecoderCrashedError and DecoderTimeoutError.
            DecodersLostError: Decoding processes keep being killed.
        """
        wanted: dict[str, Any] = {"sampling": sampling, "limits": limits, "native": native, "every": every}
        return from_shared_memory(self._run(_extract, path, **wanted, segment=segment, threads=self._threads))

    def extract_by_ranges(
        self,
        source: ByteSource,
        *,
        sampling: Sampling,
        limits: Limits,
        known: SavedIndex = (),
        segment: Segment = WHOLE,
    ) -> tuple[SampledFrames, SavedIndex]:
        """Run `extract_keyframes_by_ranges` in a decoding process, which reads `source` itself.

        Raises:
            MisledError: Byte ranges do not suffice; download the whole file.
            VideoError: As `extract` does.
            DecodersLostError: As `extract` does.
            ReelabelError: Whatever `source.read` raises.
        """
        wanted: dict[str, Any] = {"sampling": sampling, "limits": limits, "known": known, "segment": segment}
        max_wait_s = 2 * source.max_wait_s  # time for all reads, and for the last one to fail
        if math.isinf(max_wait_s):
            max_wait_s = 0.0  # reads of files and memory count as decoding time
        keyframes, index = self._run(_extract_by_ranges, source, max_wait_s=max_wait_s, **wanted, threads=self._threads)
        return from_shared_memory(keyframes), index

    def close(self) -> None:
        """Stop all processes, busy or idle; later calls raise RuntimeError."""
        with self._replacing:
            self._is_closed = True
            self._stop()

    def _stop(self) -> None:
        for future in tuple(self._running):  # Pebble would leave threads waiting for them forever
            future.cancel()
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()

    def _run(self, function: Callable[..., T], *arguments: Any, max_wait_s: float = 0.0, **named: Any) -> T:  # noqa: ANN401
        deaths = replaced = 0
        while True:
            try:
                result = self._result(self._schedule(function, arguments, named, max_wait_s), max_wait_s)
            except FutureTimeoutError:
                raise DecoderTimeoutError(
                    f"Decoding took longer than {self._timeout_s:g} s; raise extract.timeout_s if the video is valid.",
                ) from None
            except ProcessExpired as error:
                if error.exitcode == -signal.SIGXCPU:
                    raise DecoderTimeoutError(
                        f"Decoding took more than {self._cpu_s} s of CPU time; "
                        "raise extract.max_cpu_s if the video is valid.",
                    ) from None
                deaths += 1
                if deaths == _ATTEMPTS:
                    raise DecoderCrashedError(
                        f"The decoding process died twice (exit code {error.exitcode}); the video is probably damaged.",
                    ) from None
            except (BrokenProcessPool, CancelledError):
                # Idle processes died, or another thread replaced the pool: not caused by this video.
                replaced += 1
                if replaced == _REPLACEMENTS:
                    raise DecodersLostError(
                        "Decoding processes keep being killed; check whether the machine runs out of memory.",
                    ) from None
            else:
                return result

    def _schedule(
        self,
        function: Callable[..., T],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        max_wait_s: float,
    ) -> ProcessFuture[T]:
        with self._replacing:
            if self._is_closed:
                raise RuntimeError("The pool of decoding processes is closed.")
            # Pebble deactivates a pool whose idle processes are killed.
            if not self._pool.active:
                self._stop()
                self._pool = self._make_pool()
            call = [function, self._cpu_s, *arguments]
            future = self._pool.schedule(_run_limited, args=call, kwargs=named, timeout=self._timeout_s + max_wait_s)
            if not self._running:
                self._progressed_s = time.monotonic()
            self._running.add(future)
            future.add_done_callback(self._note_done)
            return future

    def _note_done(self, future: Future[Any]) -> None:
        self._running.discard(future)
        self._progressed_s = time.monotonic()

    def _result(self, future: ProcessFuture[T], max_wait_s: float) -> T:
        """Wait for a call; replace the processes if no call has finished for longer than any may take.

        Pebble has been seen to wait forever for a process that was killed at a bad moment.
        """
        longest_s = self._timeout_s + max_wait_s + _STUCK_S
        while True:
            try:
                return future.result(_POLL_S)
            except FutureTimeoutError:
                if future.done():  # it raised TimeoutError itself, or has just finished
                    return future.result()
            if time.monotonic() - self._progressed_s > longest_s:
                self._replace_stuck(future)

    def _replace_stuck(self, future: Future[Any]) -> None:
        with self._replacing:
            if not self._is_closed and not future.done():  # otherwise another thread has replaced it
                self._stop()
                self._pool = self._make_pool()

    def _make_pool(self) -> ProcessPool:
        pool = ProcessPool(
            max_workers=self._processes,
            context=multiprocessing.get_context("spawn"),
            initializer=_init_process,
            initargs=[self._memory_mib],
        )
        # Threads and processes inherit blocked signals, so no process receives a Ctrl-C while it starts. The resource
        # tracker is started first, as starting it unblocks the signal.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            assert pool.active  # reading it starts the pool
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pool


def _extract(path: Path, **wanted: Any) -> SharedFrames | SampledFrames:  # noqa: ANN401
    return to_shared_memory(extract_keyframes(path, **wanted))


def _extract_by_ranges(source: ByteSource, **wanted: Any) -> tuple[SharedFrames | SampledFrames, SavedIndex]:  # noqa: ANN401
    keyframes, index = extract_keyframes_by_ranges(source, **wanted)
    return to_shared_memory(keyframes), index


def _run_limited(function: Callable[..., T], cpu_s: int, /, *arguments: Any, **named: Any) -> T:  # noqa: ANN401
    """Call a function in a decoding process, with a CPU time limit and its errors turned into VideoErrors."""
    # RLIMIT_CPU counts from the start of the process, and each video gets a budget of its own.
    spent_s = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _set_limit(resource.RLIMIT_CPU, math.ceil(spent_s) + cpu_s)
    with as_video_errors():
        try:
            return function(*arguments, **named)
        except MemoryError:
            raise DecoderCrashedError(
                "Decoding needed more memory than extract.memory_mib; raise it if the video is valid.",
            ) from None


def _init_process(memory_mib: int) -> None:
    """Initialize a decoding process: limit its memory, ignore Ctrl-C, exit with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The kernel's parent-death signal (PR_SET_PDEATHSIG) is sent when the parent *thread* exits.
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _set_limit(resource.RLIMIT_AS, memory_mib * 1024**2)


def _set_limit(what: int, wanted: int) -> None:
    """Set a resource limit of this process, capped by the hard limit."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
