"""Any video as one object: its frames by position, by time or by a sampler, and all of them in order."""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    NoReturn,
    Protocol,
    Self,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    cast,
    overload,
    runtime_checkable,
)

import av
import numpy as np

from reelabel.decode.decoder import Decoder, LocalDecoder, open_decoder
from reelabel.errors import (
    FallbackRequired,
    InvalidOptionError,
    NoIndexError,
    NoSuchFrameError,
    OptionFault,
    ReelabelError,
    SamplingRefusedError,
    unreadable,
)
from reelabel.extract import Progress, Request, extract, extract_remotely
from reelabel.options import Limits
from reelabel.result import FrameIndex, Frames, VideoInfo
from reelabel.sampling.choose import Instants, Positions, Wanted
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE, Segment
from reelabel.sources.opened import OpenedSource, VideoSource, open_source, require_kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.index import HeaderInfo, Lists, VideoIndex
    from reelabel.sources.object_store import ObjectStore
    from reelabel.sources.sparse_file import ByteSource, CachedRange
    from reelabel.sources.video_file import VideoFile

    _Images: TypeAlias = npt.NDArray[np.uint8]

_T = TypeVar("_T")
_DEFAULT_LIMITS = Limits()
_NO_SAMPLER = Sampling(sampler="uniform")  # frames that no sampler chooses, at their own size
_ONE_KEYFRAME = Sampling(num_frames=1)
_MAX_BATCH = 2**20  # more pixels would not fit in memory, and each position is looked for


class Pieces(Protocol):
    """Decodes consecutive pieces of one video; close it afterwards."""

    progress: Progress

    def use(self, video: VideoFile, limits: Limits, work: Callable[[Decoder], _T]) -> _T:
        """Run `work` on the video."""

    def close(self) -> None:
        """Release the decoder."""


@runtime_checkable
class Decoders(Protocol):
    """What decodes videos: this process, or a `DecodePool`."""

    def use(
        self,
        video: VideoFile | ByteSource,
        limits: Limits,
        work: Callable[[Decoder], _T],
        *,
        known: tuple[CachedRange, ...] = (),
    ) -> _T:
        """Run `work` on a video, some ranges of which may be `known` already."""

    def in_pieces(self, *, length_s: float = 0.0) -> Pieces:
        """Return a decoder of consecutive pieces of one video."""

    def occupy(self) -> ExitStack:
        """Count a decoder as occupied by this thread until the returned stack is closed."""


def open(  # noqa: A001 - how a video is read
    source: VideoSource,
    *,
    pool: Decoders | None = None,
    store: ObjectStore | None = None,
    limits: Limits = _DEFAULT_LIMITS,
    threads: int = 1,
    as_stored: bool = False,
) -> Video:
    """Open a video, wherever it is. Its frames are decoded when they are asked for.

    Args:
        source: A path; a URI (`s3://`, `http://`, `https://`, `file://`, `data:`, or of a member of an archive, such as
            `s3://bucket/shard.tar#clip.mp4`); the bytes of a video; a seekable binary file object, which must stay
            open; or a source of byte ranges: an object with `size_bytes` and `read(start, size)`.
        pool: A `DecodePool`, which decodes in sandboxed processes; None decodes in this process, which a malicious
            video may take over.
        store: Reads paths and URIs; None reads them with default options.
        limits: Limits on the video.
        threads: Decoding threads, in this process; a pool has its own.
        as_stored: Leave frames as they are stored: not turned, margins not cropped, HDR not tone-mapped.

    Raises:
        TypeError: The source or an option is of another type.
        InvalidOptionError: `threads` is less than 1.
        VideoError: The video is missing, empty or too large, or may not be read.
        StoreUnavailableError: Its store does not respond.
    """
    if operator.index(threads) < 1:
        raise InvalidOptionError.of("arguments", [OptionFault("threads", threads, "must be at least 1")])
    decoders = _InProcess(threads) if pool is None else pool
    require_kind(decoders, Decoders, "pool must be a reelabel.DecodePool")
    opened = open_source(source, store=store, limits=limits)
    return Video(opened, decoders, limits=limits, as_stored=as_stored)


def extract_frames(
    source: VideoSource,
    sampler: str | Sampling = "keyframes",
    *,
    segment: tuple[float | None, float | None] = WHOLE,
    pool: Decoders | None = None,
    store: ObjectStore | None = None,
    limits: Limits = _DEFAULT_LIMITS,
    threads: int = 1,
    as_stored: bool = False,
    **options: Any,  # noqa: ANN401 - fields of `Sampling`
) -> Frames:
    """Open a video, sample frames of it, and close it; see `reelabel.open` and `Video.sample`."""
    with open(source, pool=pool, store=store, limits=limits, threads=threads, as_stored=as_stored) as video:
        return video.sample(sampler, segment=segment, **options)


class Video:
    """An open video: made by `reelabel.open` or `DecodePool.open`, and closed by its `with` block.

    Frames are byte-identical to those of a full linear decode, then turned as the container states. Only the groups of
    pictures that hold them are decoded, if the container lists its frames and decoding proves it right; else, the video
    is decoded from its beginning. Thread-safe. It cannot be pickled: pass its path or URI.

    Every method that decodes raises VideoError if the video is at fault (unreadable, no frame, too large, crashed its
    process), TransientError if its store or the pool is unavailable, and whatever a user's own source raises.
    """

    def __init__(self, source: OpenedSource, decoders: Decoders, *, limits: Limits, as_stored: bool) -> None:
        self._source, self._decoders = source, decoders
        self._linear: _InProcessPieces | None = None  # an in-process linear decoder stays open for later calls
        self._lock = threading.Lock()
        self._limits, self._as_stored = limits, as_stored
        self._known: tuple[CachedRange, ...] = ()  # of a remote video: its header, and an index
        self._header: HeaderInfo | None = None
        self._info: VideoInfo | None = None
        self._index: FrameIndex | None = None
        self._count: int | None = None
        self._is_closed = False
        weakref.finalize(self, source.close)  # also of a video that is left open when the interpreter ends

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Video cannot be pickled; pass its path or URI, and open it where it is needed.")

    def close(self) -> None:
        """Close the video; what was decoded stays valid."""
        self._is_closed = True
        with self._lock:
            if self._linear:
                self._linear.close()
                self._linear = None
        self._source.close()

    def __repr__(self) -> str:
        info = self._info
        known = f", {info.codec} {info.width}x{info.height}, {info.duration_s:.4g} s" if info else ""
        return f"Video({self._source.name!r}{known}{', closed' if self._is_closed else ''})"

    def __len__(self) -> int:
        """Return the number of frames: as the container lists them, else by demuxing, else by decoding the video."""
        if self._count is None:
            self._count = self._listed_frames() or self._decoded_frames()
        return self._count

    def _listed_frames(self) -> int:
        try:
            index = self.index()
        except NoIndexError:
            return 0
        return len(index) if index.is_keyframe[0] else 0

    def _decoded_frames(self) -> int:
        with self._errors():
            file, length_s = self._source.whole(), self._read_header().duration_s
            with self._decoders.occupy():
                pieces = self._decoders.in_pieces(length_s=length_s)
                pieces.progress.ways = ("decode",)
                try:
                    index = pieces.use(file, self._limits, lambda decoder: decoder.list_frames("decode", "frames"))
                    return len(index.order)
                finally:
                    self._keep(pieces)
                    pieces.progress = Progress()  # a faster way may still find frames, or say why it does not

    @property
    def info(self) -> VideoInfo:
        """Properties of the video, by its header and one decoded frame."""
        if self._info is None:
            self._extract_frames(_ONE_KEYFRAME)
        assert self._info is not None
        return self._info

    def index(self) -> FrameIndex:
        """Return when each frame is shown, where its packet lies, and whether it is a keyframe; nothing is decoded.

        Raises:
            NoIndexError: Neither the container nor its packets list the frames in their order.
        """
        if self._index is None:
            with self._errors():
                self._index = FrameIndex.of(self._read_index("frames"))
        return self._index

    @overload
    def __getitem__(self, key: SupportsIndex) -> _Images: ...
    @overload
    def __getitem__(self, key: slice | Iterable[SupportsIndex]) -> _Images: ...
    def __getitem__(self, key: SupportsIndex | slice | Iterable[SupportsIndex]) -> _Images:
        """Return the pixels of one frame, shape (H, W, 3), or of several, shape (N, H, W, 3); uint8.

        Positions count in the order of the decode, negative ones from the end.

        Raises:
            NoSuchFrameError: There is none; an IndexError.
        """
        if isinstance(key, slice):
            positions = range(len(self))[key]
            return (self._frames_by(Positions(positions, clips=True)) if positions else self._no_frames()).images
        # Arrays and tensors of any shape are iterable, and indices too if they hold a single number.
        if isinstance(key, Iterable) and getattr(key, "shape", None) != ():
            return self.frames(key).images
        return self.frames([cast("SupportsIndex", key)])[0]

    def __iter__(self) -> Iterator[_Images]:
        for part in self.batches(16):
            yield from part.images

    def frames(self, positions: Iterable[SupportsIndex]) -> Frames:
        """Return the frames at some positions, in the order given, with repeats.

        Raises:
            NoSuchFrameError: There is none at one of them.
        """
        numbers = tuple(map(_position, positions))
        return self._frames_by(Positions(numbers)) if numbers else self._no_frames()

    def frames_at(self, seconds: Iterable[float]) -> Frames:
        """Return the frames that are shown at some instants, in seconds since the first frame, in the order given.

        Raises:
            NoSuchFrameError: An instant is negative, or lies after the end of the video.
        """
        instants = tuple(map(float, seconds))
        if not instants:
            return self._no_frames()
        if wrong := [each for each in instants if not 0 <= each < np.inf]:
            raise NoSuchFrameError(f"No frame is shown at {wrong[0]:g} s: times count from the first frame, at 0 s.")
        span = Segment.of(min(instants), max(instants))
        frames = self._frames_by(Instants(instants), segment=span)
        latest = int(np.argmax(instants))
        ends_s = max(frames.info.duration_s, frames.time_s[latest] + (1 / frames.info.fps if frames.info.fps else 0))
        is_followed = 0 <= frames.index[latest] < (frames.selection.total_frames or 0) - 1
        if frames.info.duration_s and instants[latest] > ends_s and not is_followed:
            raise NoSuchFrameError(f"No frame is shown at {instants[latest]:g} s: the video ends at {ends_s:g} s.")
        return frames

    def sample(
        self,
        sampler: str | Sampling = "keyframes",
        *,
        segment: tuple[float | None, float | None] = WHOLE,
        **options: Any,  # noqa: ANN401 - fields of `Sampling`
    ) -> Frames:
        """Return the frames that a sampler chooses.

        Args:
            sampler: Its name, such as `uniform`, or a whole `Sampling`.
            segment: The part of the video, in seconds since the first frame, both ends inclusive; None is the start or
                the end of the video.
            options: Options of the sampler (`num_frames`, `fps`), and the size of frames (`max_pixels`,
                `size_multiple_px`; without these, frames keep their size); see `Sampling`.

        Raises:
            ValueError: The segment or an option is not valid.
            SamplingRefusedError: The sampler cannot choose frames of this video.
        """
        sampling = sampler if isinstance(sampler, Sampling) else Sampling(sampler=sampler, **options)
        if isinstance(sampler, Sampling) and options:
            raise ValueError(f"Options are given beside a Sampling: {', '.join(options)}; put them into it.")
        part = Segment.of(*segment)
        part.check_valid()
        return self._extract_frames(sampling, segment=part)

    def batches(self, size: int, *, segment: tuple[float | None, float | None] = WHOLE) -> Iterator[Frames]:
        """Yield every frame in order, `size` at a time, decoding the video once; no more than these are in memory.

        A remote video is copied first. With a pool, the loop occupies one of its processes until it ends.

        Raises:
            ValueError: The size or the segment is not valid.
        """
        if size < 1:
            raise ValueError(f"size is {size}; it must be at least 1.")
        part = Segment.of(*segment)
        part.check_valid()
        return self._batches(min(size, _MAX_BATCH), part)

    def _batches(self, size: int, segment: Segment) -> Iterator[Frames]:
        with self._errors():
            file = self._source.whole()
            header = self._read_header()
        start = 0
        with self._decoders.occupy(), closing(self._decoders.in_pieces(length_s=header.duration_s)) as pieces:
            pieces.progress.ways = ("announced", "decode")
            while True:
                request = self._request(_NO_SAMPLER, segment, Positions(range(start, start + size), clips=True))
                try:
                    with self._errors():
                        got = pieces.use(
                            file, self._limits, partial(extract, request=request, progress=pieces.progress)
                        )
                except SamplingRefusedError:
                    if not start:
                        raise
                    return
                self._info = self._info or got.info
                yield got
                start += len(got)
                if len(got) < size or (segment.is_whole and start == got.selection.total_frames):
                    return

    def _no_frames(self) -> Frames:
        return self._frames_by(Positions((0,)))[:0]

    def _frames_by(self, wanted: Wanted, segment: Segment = WHOLE) -> Frames:
        try:
            return self._extract_frames(_NO_SAMPLER, segment=segment, wanted=wanted)
        except SamplingRefusedError as error:
            raise NoSuchFrameError(error.message) from None

    def _extract_frames(self, sampling: Sampling, *, segment: Segment = WHOLE, wanted: Wanted | None = None) -> Frames:
        request = self._request(sampling, segment, wanted)

        def by_ranges(ranges: ByteSource) -> Frames:
            work = partial(extract_remotely, request=request)
            got, self._known = self._decoders.use(ranges, self._limits, work, known=self._known)
            return got

        with self._errors():
            got = self._source.extract(by_ranges, partial(self._extract_file, request=request))
        self._info = self._info or got.info
        return got

    def _extract_file(self, file: VideoFile, request: Request) -> Frames:
        if not isinstance(self._decoders, _InProcess):
            return self._decoders.use(file, self._limits, partial(extract, request=request, progress=Progress()))
        if self._linear is None:
            pieces = self._decoders.in_pieces()
            try:
                return pieces.use(file, self._limits, partial(extract, request=request, progress=pieces.progress))
            finally:
                self._keep(pieces)
        with self._lock:
            pieces = self._linear
            return pieces.use(file, self._limits, partial(extract, request=request, progress=pieces.progress))

    def _keep(self, pieces: Pieces) -> None:
        """Keep an in-process linear decoder, unless another thread has kept one."""
        with self._lock:
            if isinstance(pieces, _InProcessPieces) and pieces.progress.is_linear and self._linear is None:
                self._linear = pieces
            else:
                pieces.close()

    def _request(self, sampling: Sampling, segment: Segment, wanted: Wanted | None) -> Request:
        return Request(
            sampling=sampling, limits=self._limits, segment=segment, as_stored=self._as_stored, wanted=wanted
        )

    def _read_header(self) -> HeaderInfo:
        if self._header is None:
            self._header = self._read_index("keyframes").info
        return self._header

    def _read_index(self, lists: Lists) -> VideoIndex:
        def read(video: VideoFile | ByteSource) -> VideoIndex:
            return self._decoders.use(video, self._limits, lambda decoder: decoder.read_header(lists, of_any_size=True))

        return self._source.read(read, read)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert exceptions about the video, but not those of a user's own source."""
        if self._is_closed:
            raise ValueError("The video is closed; open it again.")
        try:
            with self._source.errors():
                yield
        except ReelabelError:
            raise
        except FallbackRequired as error:
            raise NoIndexError(f"{self._source.name} does not list its frames: {error}.") from None
        except Exception as error:
            # FFmpeg also lacks memory for sizes that a damaged file states.
            is_out_of_memory = isinstance(error, MemoryError) and not isinstance(error, av.FFmpegError)
            if is_out_of_memory or error is getattr(self._source.ranges, "failure", None):
                raise
            raise unreadable(error) from error


def _position(given: SupportsIndex) -> int:
    """Return a number; a mask's values are numbers in Python and PyTorch, but not the positions that are meant."""
    if isinstance(given, bool) or "bool" in str(getattr(given, "dtype", "")):
        raise TypeError("a position is a whole number, not True or False; of a mask, pass numpy.flatnonzero(mask)")
    return operator.index(given)


class _InProcess:
    def __init__(self, threads: int) -> None:
        self._threads = threads

    def use(
        self,
        video: VideoFile | ByteSource,
        limits: Limits,
        work: Callable[[LocalDecoder], _T],
        *,
        known: tuple[CachedRange, ...] = (),
    ) -> _T:
        with closing(open_decoder(video, limits, threads=self._threads, known=known)) as decoder:
            return work(decoder)

    def in_pieces(self, *, length_s: float = 0.0) -> _InProcessPieces:  # noqa: ARG002 - here, nothing ends it
        return _InProcessPieces(self._threads)

    def occupy(self) -> ExitStack:
        return ExitStack()


class _InProcessPieces:
    """Decodes pieces of one video in this process, with one decoder."""

    def __init__(self, threads: int) -> None:
        self.progress = Progress()
        self._threads = threads
        self._decoder: LocalDecoder | None = None

    def use(self, video: VideoFile, limits: Limits, work: Callable[[LocalDecoder], _T]) -> _T:
        self._decoder = self._decoder or LocalDecoder(video, limits, threads=self._threads)
        return work(self._decoder)

    def close(self) -> None:
        if self._decoder:
            self._decoder.close()
            self._decoder = None
