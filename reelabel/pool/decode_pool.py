"""A pool of disposable decoding processes: a video that crashes, hangs or takes over its decoder fails alone."""

from __future__ import annotations

import math
import threading
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from reelabel.cores import usable_cores
from reelabel.errors import (
    ConfigurationError,
    DecoderCrashedError,
    InvalidReplyError,
    NotStartedError,
    ProcessDiedError,
)
from reelabel.extract import Progress, Request, extract, extract_remotely
from reelabel.options import Limits
from reelabel.pool.messages import Setup
from reelabel.pool.process import TimeLimits
from reelabel.pool.processes import MAX_LOST, DecodingProcesses, decoders_lost
from reelabel.pool.remote import RemoteDecoder
from reelabel.sandbox import SandboxMode, check_mode
from reelabel.sources.opened import VideoSource, open_source
from reelabel.sources.video_file import VideoFile, open_video_file
from reelabel.video import Video

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from reelabel.index import Lists, VideoIndex
    from reelabel.result import Frames
    from reelabel.sources.object_store import ObjectStore
    from reelabel.sources.sparse_file import ByteSource, CachedRange

_Result = TypeVar("_Result")
_MAX_THREADS = 8  # for the usual sixteen frames, more are not worth their memory
_SECONDS_PER_LIMIT = 60.0  # of a video decoded in order, for which it may take as long as a whole one may
# A process may also be killed from outside, such as by the OOM killer; a second attempt distinguishes the cases.
_ATTEMPTS = 2
_DEFAULT_LIMITS = Limits()


class DecodePool:
    """A pool of decoding processes. Thread-safe.

    A process that dies, exceeds a limit or sends anything invalid is replaced. A video whose process died is retried
    once. A pool belongs to the process that made it: it cannot be pickled, and a forked process makes its own.
    """

    def __init__(
        self,
        *,
        processes: int = 1,
        timeout_s: float = 60.0,
        memory_mib: int = 4096,
        cpu_s: int = 120,
        threads: int | None = None,
        videos_per_process: int = 1000,
        sandbox: SandboxMode = "auto",
        ahead: bool = True,
    ) -> None:
        """Start the processes.

        Args:
            processes: Videos decoded at once.
            timeout_s: Wall-clock limit per video, in seconds.
            memory_mib: Address space limit per process, in MiB.
            cpu_s: CPU time limit per video, in seconds.
            threads: Decoding threads per video; None divides the usable cores among the processes.
            videos_per_process: Videos after which a process is replaced; 1 gives each video a process of its own, so
                that a hostile one cannot change the frames of another.
            sandbox: `require` refuses to decode where the kernel cannot confine the processes, `auto` decodes with what
                protection there is, `off` only limits memory.
            ahead: Start all processes now, so that no video waits for one; otherwise, each once a video needs it.

        Raises:
            ConfigurationError: An argument is invalid.
            SandboxUnavailableError: The sandbox is required and not available.
        """
        check_mode(sandbox)
        _check_positive(
            processes=processes,
            timeout_s=timeout_s,
            memory_mib=memory_mib,
            cpu_s=cpu_s,
            threads=threads,
            videos_per_process=videos_per_process,
        )
        self._threads = threads or max(1, min(_MAX_THREADS, usable_cores() // processes))
        self._limits = TimeLimits(timeout_s=timeout_s, cpu_s=cpu_s)
        self._processes = DecodingProcesses(
            Setup(memory_bytes=memory_mib * 1024**2, threads=self._threads, sandbox=sandbox),
            count=processes,
            videos_per_process=videos_per_process,
            ahead=ahead,
        )
        self._count, self._loops = processes, _Loops()

    def __reduce__(self) -> NoReturn:
        raise TypeError("A DecodePool cannot be pickled; make one in each process, or use PrepareVideo, which does.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    @property
    def process_ids(self) -> list[int]:
        """The ids of all processes that were started and not replaced."""
        return self._processes.ids

    def extract(self, video: Path | str | bytes | VideoFile, **options: Any) -> Frames:  # noqa: ANN401
        """Run `extract_local` in a decoding process, which gets the open file, not its path.

        It waits while all processes are busy: more threads than processes are of no use. Options are the fields of
        `reelabel.extract.Request`.

        Raises ValueError if the segment is not valid, VideoError as `extract_local` does, DecoderCrashedError and
        DecoderTimeoutError among them, ConfigurationError if decoding processes cannot start, DecodersLostError if they
        keep being killed, DecodersClosedError if the pool is closed, and RuntimeError if another process made it.
        """
        request = Request(**options)
        request.segment.check_valid()
        with open_video_file(video) as file:
            return self.use(file, request.limits, lambda decoder: extract(decoder, request, Progress()))

    def open(
        self,
        source: VideoSource,
        *,
        store: ObjectStore | None = None,
        limits: Limits = _DEFAULT_LIMITS,
        as_stored: bool = False,
    ) -> Video:
        """Open a video as `reelabel.open` does, to be decoded by this pool's processes."""
        return Video(open_source(source, store=store, limits=limits), self, limits=limits, as_stored=as_stored)

    def in_pieces(self, *, length_s: float = 0.0) -> PieceDecoder:
        """Return a decoder of consecutive pieces of one video; close it afterwards.

        If it must decode the video from its beginning, the time limits apply to each minute of `length_s`.
        """
        minutes = max(1.0, length_s / _SECONDS_PER_LIMIT)
        allowed = TimeLimits(timeout_s=minutes * self._limits.timeout_s, cpu_s=minutes * self._limits.cpu_s)
        return PieceDecoder(self, allowed)

    def occupy(self) -> ExitStack:
        """Count a process as occupied by this thread until the returned stack is closed.

        Raises ConfigurationError if it occupies all of them, and would wait for itself forever.
        """
        self._check_not_deadlocked()
        running, stack = self._loops.running, ExitStack()
        running.append(None)
        stack.callback(running.pop)  # by whichever thread ends the loop
        return stack

    def _check_not_deadlocked(self) -> None:
        if len(self._loops.running) >= self._count:
            raise ConfigurationError(
                f"This thread's loops over batches() occupy all {self._count} decoding processes; end one, or use a "
                "pool of more."
            )

    def extract_by_ranges(
        self,
        source: ByteSource,
        *,
        known: tuple[CachedRange, ...] = (),
        **options: Any,  # noqa: ANN401
    ) -> tuple[Frames, tuple[CachedRange, ...]]:
        """Run `extract_ranges` in a decoding process, for which this one reads `source`.

        Raises FallbackRequired if ranges do not suffice, so that the whole file must be downloaded; or as `extract` and
        `source.read` do.
        """
        request = Request(**options)
        return self.use(source, request.limits, lambda decoder: extract_remotely(decoder, request), known=known)

    def read_index(
        self, video: VideoFile | ByteSource, *, limits: Limits, lists: Lists, known: tuple[CachedRange, ...] = ()
    ) -> tuple[VideoIndex, tuple[CachedRange, ...], int]:
        """Run `reelabel.decode.read_index` in a decoding process, on an open file or on ranges of a video.

        Returns the index, the ranges that hold its keyframes, and the bytes read. Raises FallbackRequired if the frames
        are not listed, or as `extract_by_ranges` does.
        """

        def read(decoder: RemoteDecoder) -> tuple[VideoIndex, tuple[CachedRange, ...], int]:
            index = decoder.read_header(lists)
            return index, decoder.known, decoder.ranges.bytes_fetched if decoder.ranges else 0

        return self.use(video, limits, read, known=known)

    def close(self) -> None:
        """Stop all processes, busy or idle; later calls raise DecodersClosedError."""
        self._processes.close()

    def _reading_limits(self, source: VideoFile | ByteSource) -> TimeLimits:
        """Add the time for all reads, and for the last one to fail; reads of files and memory count as decoding."""
        reading_s = 0.0 if isinstance(source, VideoFile) else 2 * source.max_wait_s
        return self._limits if math.isinf(reading_s) else replace(self._limits, reading_s=reading_s)

    @contextmanager
    def acquire(
        self,
        video: VideoFile | ByteSource,
        limits: Limits,
        allowed: TimeLimits | None = None,
        *,
        known: tuple[CachedRange, ...] = (),
    ) -> Iterator[RemoteDecoder]:
        """Acquire a process for a video, within the time `allowed`, or that for one video."""
        allowed = allowed or self._reading_limits(video)
        with self._processes.acquire() as process:
            decoder = RemoteDecoder(process, video, limits, allowed, threads=self._threads, known=known)
            try:
                yield decoder
            finally:
                decoder.close()

    def use(
        self,
        video: VideoFile | ByteSource,
        limits: Limits,
        work: Callable[[RemoteDecoder], _Result],
        *,
        known: tuple[CachedRange, ...] = (),
    ) -> _Result:
        """Run `work` on a video with a process of the pool; raises as `extract` does."""
        self._check_not_deadlocked()
        return self.retry(lambda: self.acquire(video, limits, known=known), work)

    def retry(
        self, acquire: Callable[[], AbstractContextManager[RemoteDecoder]], work: Callable[[RemoteDecoder], _Result]
    ) -> _Result:
        """Run `work` with the process that `acquire` provides, and once more if that dies."""
        deaths = lost = 0
        while True:
            with acquire() as decoder:
                try:
                    return work(decoder)
                except NotStartedError as error:
                    self._processes.check_open()
                    lost += 1
                    if lost == MAX_LOST:
                        raise decoders_lost(str(error)) from None
                except ProcessDiedError:
                    self._processes.check_open()
                    deaths += 1
                    if deaths == _ATTEMPTS:
                        raise DecoderCrashedError(
                            f"The decoding process died twice (exit code {decoder.process.end()}); "
                            "the video is probably damaged."
                        ) from None
                except InvalidReplyError as error:
                    raise DecoderCrashedError(
                        f"The decoding process returned invalid data ({error}); the video may have compromised it. "
                        "Treat the video as malicious."
                    ) from None


class _Loops(threading.local):
    """An entry for each process that this thread occupies."""

    def __init__(self) -> None:
        self.running: list[None] = []


@dataclass(slots=True)
class PieceDecoder:
    """Decodes pieces of one video, in order of time. Used by one thread at a time.

    Each piece is decoded by itself as long as that is exact. From the first one on that is not, a process is kept for
    the video, which decodes it from its beginning: once to list its frames, and once for all pieces. Closing releases
    that process; later pieces are then decoded in another pass.
    """

    pool: DecodePool
    allowed: TimeLimits
    pieces: int = 0
    progress: Progress = field(default_factory=lambda: Progress(in_pieces=True))
    _decoder: RemoteDecoder | None = None
    _kept: ExitStack = field(default_factory=ExitStack)

    @property
    def is_in_order(self) -> bool:
        """Whether the video is decoded from its beginning."""
        return self.progress.is_linear

    def extract(self, video: Path | VideoFile, **options: Any) -> Frames:  # noqa: ANN401
        """Decode the next piece, as `DecodePool.extract` does."""
        request = Request(**options)
        self.pieces += 1
        return self.use(video, request.limits, lambda decoder: extract(decoder, request, self.progress))

    def use(self, video: Path | VideoFile, limits: Limits, work: Callable[[RemoteDecoder], _Result]) -> _Result:
        """Run `work` on the video with the process that is kept for it, or another; raises as `extract` does."""
        with open_video_file(video) as file:
            return self.pool.retry(lambda: self._acquire(file, limits), work)

    def close(self) -> None:
        self._decoder = None
        self._kept.close()

    @contextmanager
    def _acquire(self, file: VideoFile, limits: Limits) -> Iterator[RemoteDecoder]:
        if self._decoder is None:
            self._decoder = self._kept.enter_context(self.pool.acquire(file, limits, self.allowed))
        try:
            yield self._decoder
        finally:
            if not self.is_in_order or not self._decoder.process.is_healthy():
                self.close()


def _check_positive(**arguments: float | None) -> None:
    for name, value in arguments.items():
        if value is not None and not value > 0:
            raise ConfigurationError(f"{name} is {value}; it must be greater than 0.")
