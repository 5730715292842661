"""A pool of disposable decoding processes: a video that crashes, hangs or takes over its decoder fails alone."""

from __future__ import annotations

import math
import os
import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from reelabel.cores import usable_cores
from reelabel.errors import (
    ConfigurationError,
    DecoderCrashedError,
    InvalidReplyError,
    NotStartedError,
    ProcessDiedError,
)
from reelabel.limits import Limits
from reelabel.pool.messages import Frames, Index, Request, Setup
from reelabel.pool.piece_decoder import PieceDecoder
from reelabel.pool.process import TimeLimits
from reelabel.pool.processes import MAX_LOST, DecodingProcesses, Modules, decoders_lost
from reelabel.pool.reading import RangeReader
from reelabel.pool.transfer import sampled_frames, unpack_frames, unpack_index, with_ranges
from reelabel.sampling.options import Sampling
from reelabel.sandbox import check_mode
from reelabel.segment import WHOLE
from reelabel.sources.video_file import VideoFile, open_video_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reelabel.index import Lists, VideoIndex
    from reelabel.pool.piece_decoder import Acquire
    from reelabel.pool.process import DecodingProcess
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.choose import Wanted
    from reelabel.sandbox import SandboxMode
    from reelabel.segment import Segment, Windows
    from reelabel.sources.object_store import ObjectStore
    from reelabel.sources.sparse_file import ByteSource, CachedRange
    from reelabel.strategies.keyframe_table import SavedIndex
    from reelabel.video import Video
    from reelabel.video_source import VideoSource

_Result = TypeVar("_Result")
_MAX_THREADS = 8  # for the usual sixteen frames, more are not worth their memory
_SECONDS_PER_LIMIT = 60.0  # of a video decoded in order, for which it may take as long as a whole one may
# A process may also be killed from outside, such as by the OOM killer; a second attempt distinguishes the cases.
_ATTEMPTS = 2


_DEFAULT_SAMPLING = Sampling()
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
        _require_positive(
            processes=processes,
            timeout_s=timeout_s,
            memory_mib=memory_mib,
            cpu_s=cpu_s,
            threads=threads,
            videos_per_process=videos_per_process,
        )
        self._threads = threads or max(1, min(_MAX_THREADS, usable_cores() // processes))
        self._limits = TimeLimits(timeout_s=timeout_s, cpu_s=cpu_s)
        self._memory_bytes = memory_mib * 1024**2
        self._processes = DecodingProcesses(
            Setup(memory_bytes=self._memory_bytes, threads=self._threads, sandbox=sandbox),
            count=processes,
            videos_per_process=videos_per_process,
            ahead=ahead,
        )
        self._count, self._occupied = processes, threading.local()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, as decoding processes are children of this one.

        Raises:
            TypeError: Always.
        """
        raise TypeError("A DecodePool cannot be pickled; make one in each process, or use PrepareVideo, which does.")

    def __enter__(self) -> Self:
        """Return the pool itself."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Stop all processes."""
        self.close()

    @property
    def process_ids(self) -> list[int]:
        """The ids of all processes that were started and not replaced."""
        return self._processes.ids

    def extract(  # noqa: PLR0913 - the fields of an extraction request
        self,
        video: Path | str | bytes | VideoFile,
        *,
        sampling: Sampling = _DEFAULT_SAMPLING,
        limits: Limits = _DEFAULT_LIMITS,
        native: bool = False,
        every: bool = False,
        segment: Segment = WHOLE,
        windows: Windows = (),
        roughly: bool = False,
        fast_only: bool = False,
        wanted: Wanted | None = None,
    ) -> SampledFrames:
        """Run `extract_local` in a decoding process, which gets the open file, not its path.

        It waits while all processes are busy: more threads than processes are of no use.

        With `windows`, a dense sampler samples from these parts of the segment alone. With `roughly`, the frames need
        not be exact; see `ExtractionRequest`. With `fast_only`, the video is not decoded from its beginning.
        `wanted` frames take the place of those of a dense sampler.

        Raises:
            ValueError: The segment is not valid.
            DecodersClosedError: The pool is closed.
            RuntimeError: Another process made it.
            FallbackRequired: `fast_only` was requested, and nothing else would be exact.
            VideoError: As `extract_local` does; also DecoderCrashedError and DecoderTimeoutError.
            DecodersLostError: Decoding processes keep being killed.
            ConfigurationError: Decoding processes cannot start.
        """
        segment.check_valid()
        return self._extract(
            video,
            self._limits,
            sampling=sampling,
            limits=limits,
            native=native,
            every=every,
            segment=segment,
            windows=windows,
            roughly=roughly,
            fast_only=fast_only,
            wanted=wanted,
        )

    def open(
        self,
        source: VideoSource,
        *,
        store: ObjectStore | None = None,
        limits: Limits = _DEFAULT_LIMITS,
        as_stored: bool = False,
    ) -> Video:
        """Open a video as `reelabel.open` does, to be decoded by this pool's processes."""
        video = import_module("reelabel.video")  # which imports the whole library
        opened: Video = video.open(source, pool=self, store=store, limits=limits, as_stored=as_stored)
        return opened

    def in_pieces(self, *, length_s: float = 0.0) -> PieceDecoder:
        """Return what decodes a video piece by piece; close it afterwards.

        Args:
            length_s: Length of the video in seconds, by which it may take longer to be decoded from its beginning than
                another to be decoded at once: a time limit for each minute.
        """
        minutes = max(1.0, length_s / _SECONDS_PER_LIMIT)
        allowed = TimeLimits(timeout_s=minutes * self._limits.timeout_s, cpu_s=minutes * self._limits.cpu_s)
        in_order = partial(self._extract, allowed=allowed, in_order=True)
        return PieceDecoder(self.extract, in_order, self._processes.acquire)

    def occupy(self) -> ExitStack:
        """Note that this thread keeps a process for itself, until what is returned is closed.

        Raises:
            ConfigurationError: It keeps all of them, and would wait for itself forever.
        """
        self._require_free()
        self._occupied.count = getattr(self._occupied, "count", 0) + 1
        stack = ExitStack()
        stack.callback(self._free)
        return stack

    def _free(self) -> None:
        self._occupied.count = max(0, getattr(self._occupied, "count", 0) - 1)

    def _require_free(self) -> None:
        if getattr(self._occupied, "count", 0) >= self._count:
            raise ConfigurationError(
                f"This thread's loops over batches() occupy all {self._count} decoding processes; end one, or use a "
                "pool of more."
            )

    def extract_by_ranges(  # noqa: PLR0913 - the fields of an extraction request
        self,
        source: ByteSource,
        *,
        sampling: Sampling,
        limits: Limits,
        known: SavedIndex = (),
        segment: Segment = WHOLE,
        native: bool = False,
        windows: Windows = (),
        roughly: bool = False,
        wanted: Wanted | None = None,
    ) -> tuple[SampledFrames, SavedIndex]:
        """Run `extract_ranges` in a decoding process, for which this one reads `source`.

        Raises:
            FallbackRequired: Byte ranges do not suffice; download the whole file.
            VideoError: As `extract` does.
            DecodersLostError: As `extract` does.
            ReelabelError: Whatever `source.read` raises.
        """
        request = Request(
            size_bytes=source.size_bytes,
            suffix="",
            sampling=sampling,
            limits=limits,
            segment=segment,
            threads=self._threads,
            known=known,
            native=native,
            windows=windows,
            roughly=roughly,
            wanted=wanted,
        )
        return self._run(request, source, self._reading_limits(source))

    def read_index(
        self,
        video: VideoFile | ByteSource,
        *,
        limits: Limits,
        lists: Lists,
        known: tuple[CachedRange, ...] = (),
        of_any_size: bool = False,
    ) -> tuple[VideoIndex, tuple[CachedRange, ...], int]:
        """Run `reelabel.read_index` in a decoding process, on an open file, or a video that is read in ranges.

        Returns:
            The index, the ranges of the file that hold its keyframes, and the bytes read.

        Raises:
            FallbackRequired: The frames are not listed.
            VideoError: As `extract` does, as far as the header shows.
            DecodersLostError: As `extract` does.
            ReelabelError: Whatever `video.read` raises.
        """
        file, reader = (video, None) if isinstance(video, VideoFile) else (None, RangeReader(video))
        request = Request(
            size_bytes=video.size_bytes,
            suffix=file.suffix if file else "",
            sampling=Sampling(),
            limits=limits,
            segment=WHOLE,
            threads=self._threads,
            known=None if file else known,
            lists=lists,
            of_any_size=of_any_size,
        )

        def ask(process: DecodingProcess) -> tuple[VideoIndex, tuple[CachedRange, ...], int]:
            message, arrays = process.ask(
                request, file.descriptor if file else None, reader, self._reading_limits(video)
            )
            try:
                index = unpack_index(message, arrays, max_bytes=self._memory_bytes)
            finally:
                os.close(arrays)
            process.accept()
            if reader is None or not isinstance(message, Index):
                return index, (), 0
            is_kept = lists == "keyframes" and index.is_listed
            return index, reader.index(known, message.reads) if is_kept else (), reader.bytes_fetched

        return self._with_process(Modules.of(request.sampling), ask)

    def close(self) -> None:
        """Stop all processes, busy or idle; later calls raise DecodersClosedError."""
        self._processes.close()

    def _reading_limits(self, source: VideoFile | ByteSource) -> TimeLimits:
        """Add the time for all reads, and for the last one to fail; reads of files and memory count as decoding."""
        reading_s = 0.0 if isinstance(source, VideoFile) else 2 * source.max_wait_s
        return self._limits if math.isinf(reading_s) else replace(self._limits, reading_s=reading_s)

    def _extract(
        self,
        video: Path | str | bytes | VideoFile,
        allowed: TimeLimits,
        acquire: Acquire | None = None,
        **options: Any,  # noqa: ANN401 - fields of a request
    ) -> SampledFrames:
        """Extract from a video in a process of the pool, or in the one that `acquire` provides."""
        with ExitStack() as stack:
            file = video if isinstance(video, VideoFile) else stack.enter_context(open_video_file(video))
            request = Request(size_bytes=file.size_bytes, suffix=file.suffix, threads=self._threads, **options)
            return self._run(request, file.descriptor, allowed, acquire)[0]

    def _run(
        self, request: Request, video: int | ByteSource, limits: TimeLimits, acquire: Acquire | None = None
    ) -> tuple[SampledFrames, SavedIndex]:
        modules = Modules.of(request.sampling)
        return self._with_process(modules, lambda process: self._ask(process, request, video, limits), acquire)

    def _with_process(
        self, modules: Modules, ask: Callable[[DecodingProcess], _Result], acquire: Acquire | None = None
    ) -> _Result:
        if acquire is None:
            self._require_free()
        deaths = lost = 0
        while True:
            with (acquire or self._processes.acquire)(modules) as process:
                try:
                    return ask(process)
                except NotStartedError as error:
                    self._processes.require_open()
                    lost += 1
                    if lost == MAX_LOST:
                        raise decoders_lost(str(error)) from None
                except ProcessDiedError:
                    self._processes.require_open()
                    deaths += 1
                    if deaths == _ATTEMPTS:
                        raise DecoderCrashedError(
                            f"The decoding process died twice (exit code {process.end()}); "
                            "the video is probably damaged."
                        ) from None
                except InvalidReplyError as error:
                    raise DecoderCrashedError(
                        f"The decoding process sent something invalid ({error}), as if the video had taken it over; "
                        "do not trust the video."
                    ) from None

    def _ask(
        self, process: DecodingProcess, request: Request, video: int | ByteSource, limits: TimeLimits
    ) -> tuple[SampledFrames, SavedIndex]:
        reader = None if isinstance(video, int) else RangeReader(video)
        message, descriptor = process.ask(request, video if isinstance(video, int) else None, reader, limits)
        try:
            assert isinstance(message, Frames)
            arrays = unpack_frames(message, descriptor, request, max_bytes=self._memory_bytes)
        finally:
            os.close(descriptor)
        result: tuple[SampledFrames, SavedIndex] = (
            with_ranges(message, arrays, request, reader) if reader else (sampled_frames(message, arrays, request), ())
        )
        process.accept()
        return result


def _require_positive(**arguments: float | None) -> None:
    for name, value in arguments.items():
        if value is not None and not value > 0:
            raise ConfigurationError(f"{name} is {value}; it must be greater than 0.")
