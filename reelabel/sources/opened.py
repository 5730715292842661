"""Videos, wherever they are, opened for decoding: by ranges where that reads less, otherwise whole."""

from __future__ import annotations

import io
import math
import operator
import os
import tempfile
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from reelabel.errors import (
    ConfigurationError,
    FallbackRequired,
    LoginRefusedError,
    MemberMissingError,
    ObjectChangedError,
    ObjectMissingError,
    ObjectTooLargeError,
    RangesIgnoredError,
    StoreUnavailableError,
    VideoChangedError,
    VideoEmptyError,
    VideoError,
    VideoMissingError,
    VideoRefusedError,
    VideoTooLargeError,
)
from reelabel.options import Limits
from reelabel.sources.object_info import INLINE_SCHEME, escape_name, redact_uri, scheme_of, split_member
from reelabel.sources.source import Source, faults_of_one_object
from reelabel.sources.sparse_file import SMALL_BYTES, ByteRange, ByteSource, read_ranges
from reelabel.sources.video_file import VideoFile, open_video_file, video_in_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reelabel.result import Frames
    from reelabel.sources.download_cache import DownloadCache
    from reelabel.sources.object_store import ObjectInfo, ObjectStore


class BinaryFile(Protocol):
    """A seekable file that is open in binary mode, such as of `open`, `gzip.open` or `tempfile`."""

    def read(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, whence: Literal[0, 1, 2] = ..., /) -> object: ...

    def tell(self) -> int: ...


class ByteRanges(Protocol):
    """A user's `ByteSource`, whose reads need no time limit."""

    @property
    def size_bytes(self) -> int: ...

    def read(self, start: int, size: int) -> bytes: ...


VideoSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryFile | ByteRanges
_T = TypeVar("_T")

# Below this size, one request for the whole file is faster than several small ones in sequence.
RANGES_MIN_BYTES = 2 * 1024**2
_PIECE_BYTES = 4 * 1024**2
_PIECES_AT_ONCE = 8


@dataclass(slots=True, kw_only=True)
class OpenedSource:
    """The bytes of one video: an open file, or something else of which ranges are read. Thread-safe.

    Attributes:
        name: Its name in messages, without secrets.
        file: The file; None while only ranges can be read.
        ranges: The source of ranges; None if it is read whole.
        copies: Where it is copied if ranges do not suffice; None is memory or a temporary file.
        is_local: Whether it needs no copy.
        bytes_fetched: Bytes fetched so far for a copy, and by failed attempts to read ranges.
        frames_decoded: Frames decoded by failed attempts.
    """

    name: str
    limits: Limits
    file: VideoFile | None = None
    ranges: ByteSource | None = None
    copies: DownloadCache | None = None
    is_local: bool = False
    bytes_fetched: int = 0
    fetch_ms: float = 0.0
    frames_decoded: int = 0
    _object: Source | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, by_ranges: Callable[[ByteSource], _T], of_file: Callable[[VideoFile], _T]) -> _T:
        """Call `by_ranges` if ranges suffice, else `of_file` with the file or a copy."""
        if self.file is None and self.ranges is not None:
            try:
                return by_ranges(self.ranges)
            except FallbackRequired as error:
                self.bytes_fetched += error.bytes_fetched
                self.frames_decoded += error.frames_decoded
            except RangesIgnoredError:
                pass
        return of_file(self.whole())

    def extract(self, by_ranges: Callable[[ByteSource], Frames], of_file: Callable[[VideoFile], Frames]) -> Frames:
        """Return frames as `read` does, with the cost of failed attempts and of the copy included."""
        bytes_before, ms_before, frames_before = self.bytes_fetched, self.fetch_ms, self.frames_decoded
        got = self.read(by_ranges, of_file)
        cost = got.cost
        return got.with_selection(
            bytes_fetched=cost.bytes_fetched + self.bytes_fetched - bytes_before,
            fetch_ms=cost.fetch_ms + self.fetch_ms - ms_before,
            frames_decoded=cost.frames_decoded + self.frames_decoded - frames_before,
        )

    def whole(self) -> VideoFile:
        """Return the file, after copying it, once; raise VideoTooLargeError, or what the source raises."""
        with self._lock:
            if self.file is None:
                started = time.perf_counter()
                self.file = self._copy_object(self._object) if self._object else self._copy_ranges()
                if not self.is_local:
                    self.fetch_ms += (time.perf_counter() - started) * 1e3
            return self.file

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert errors of a store into errors of the video; one that was replaced is not reported as damaged."""
        with _video_errors():
            try:
                yield
            except VideoError as error:
                if error.stage == "decode":  # perhaps because parts of two versions were decoded
                    self.check_unchanged()
                raise

    def check_unchanged(self) -> None:
        """Raise VideoChangedError if it is no longer the version that was opened."""
        if self._object:
            with _video_errors():
                self._object.check_unchanged()

    def close(self) -> None:
        self._stack.close()

    def _copy_object(self, source: Source) -> VideoFile:
        from reelabel.sources.download_cache import DownloadCache  # noqa: PLC0415 - a file needs no store
        from reelabel.sources.local import FileSource  # noqa: PLC0415

        if isinstance(source, FileSource):
            return source.as_video()
        copies = self.copies or DownloadCache(memory_bytes=SMALL_BYTES)
        copied = self._stack.enter_context(copies.local_copy(source, max_bytes=self.limits.max_video_bytes))
        self.bytes_fetched += copied.bytes_fetched
        return self._stack.enter_context(open_video_file(copied.path))

    def _copy_ranges(self) -> VideoFile:
        assert self.ranges is not None
        size = self.ranges.size_bytes
        if size > self.limits.max_video_bytes:
            raise VideoTooLargeError(f"The {size:,} bytes of {self.name} exceed max_video_bytes.")
        pieces = [ByteRange(start, min(_PIECE_BYTES, size - start)) for start in range(0, size, _PIECE_BYTES)]
        copy = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        for first in range(0, len(pieces), _PIECES_AT_ONCE):
            for data in read_ranges(self.ranges, pieces[first : first + _PIECES_AT_ONCE]):
                copy.write(data)
        copy.flush()
        self.bytes_fetched += size
        return VideoFile(copy.fileno(), size)


def require_kind(given: object, kind: type, rule: str) -> None:
    """Raise TypeError for an argument of another type, which would later look like a fault of the video."""
    if not isinstance(given, kind):
        raise TypeError(f"{rule}, not {type(given).__name__}.")


def open_source(source: VideoSource, *, store: ObjectStore | None, limits: Limits) -> OpenedSource:
    """Open the source of a video, as `reelabel.open` does; only its size is read."""
    require_kind(limits, Limits, "limits must be reelabel.Limits")
    if store is not None:
        from reelabel.sources.object_store import ObjectStore  # noqa: PLC0415 - a file needs no store

        require_kind(store, ObjectStore, "store must be a reelabel.ObjectStore")
    if store and isinstance(source, os.PathLike):  # which may lie outside of the store's folders
        source = escape_name(os.path.abspath(source))  # noqa: PTH100 - resolves .. but not links
    if isinstance(source, str) and (store or not _is_file(source)):
        from reelabel.sources.object_store import ObjectStore  # noqa: PLC0415 - a file needs no store

        objects = ObjectStore() if store is None else store
        return open_object(objects, stat_video(objects, source), limits, min_bytes=RANGES_MIN_BYTES)
    if isinstance(source, str | os.PathLike):
        return _open_local(os.fspath(source), limits, open_video_file(Path(source)))
    if isinstance(source, bytes | bytearray | memoryview):
        return _open_local("the video", limits, video_in_memory(bytes(source)))
    if hasattr(source, "size_bytes") and hasattr(source, "read"):
        return OpenedSource(name="the video", limits=limits, ranges=_FailureKeeper(source))
    if hasattr(source, "read") and hasattr(source, "seek"):
        return _open_file_object(source, limits)
    raise TypeError(
        f"A video is a path, a URI, bytes, a seekable binary file or a byte source, not {type(source).__name__}."
    )


def _is_file(uri: str) -> bool:
    is_path = scheme_of(uri) is None and split_member(uri) is None
    return is_path and os.path.isfile(uri)  # noqa: PTH113 - unlike Path.is_file, takes names that are too long


def _open_local(name: str, limits: Limits, opened: Any) -> OpenedSource:  # noqa: ANN401 - a context manager
    with ExitStack() as stack:
        file = stack.enter_context(opened)
        return OpenedSource(name=name, limits=limits, is_local=True, file=file, _stack=stack.pop_all())


def open_object(
    objects: ObjectStore,
    info: ObjectInfo,
    limits: Limits,
    *,
    min_bytes: int = 0,
    always_by_ranges: bool = False,
    copies: DownloadCache | None = None,
) -> OpenedSource:
    """Open one version of a video; close it afterwards. Raises VideoError if it is empty, too large or gone.

    A remote one of at least `min_bytes` is read by ranges, and with `always_by_ranges`, so is a local one.
    """
    from reelabel.sources.local import FileSource  # noqa: PLC0415 - a path needs no store

    check_size(info, limits)
    with ExitStack() as stack:
        with _video_errors(), faults_of_one_object(info.uri):
            source = stack.enter_context(objects.open(info.uri, known=info))
        file = source.as_video() if isinstance(source, FileSource) else None
        is_large = file is None and info.size_bytes >= min_bytes
        is_by_ranges = (always_by_ranges or is_large) and scheme_of(info.uri) != INLINE_SCHEME
        return OpenedSource(
            name=redact_uri(info.uri),
            limits=limits,
            ranges=_FailureKeeper(source) if is_by_ranges else None,
            copies=copies,
            is_local=file is not None,
            file=None if is_by_ranges else file,
            _object=source,
            _stack=stack.pop_all(),
        )


def _open_file_object(source: Any, limits: Limits) -> OpenedSource:  # noqa: ANN401 - whatever has read and seek
    if isinstance(source, io.TextIOBase):
        raise TypeError("The file is open as text; open it with mode 'rb'.")
    if hasattr(source, "seekable") and not source.seekable():
        raise TypeError("The file is not seekable, such as a pipe or a response; read it, and pass the bytes.")
    if isinstance(source, io.BytesIO):
        return _open_local("the video", limits, video_in_memory(source.getvalue()))
    # Others may have the descriptor of a file that they are read from, such as `gzip.open`.
    buffered = isinstance(source, io.BufferedReader | io.BufferedRandom)
    if not isinstance(source.raw if buffered else source, io.FileIO):
        return OpenedSource(name="the video", limits=limits, ranges=_FailureKeeper(_FileRanges(source)))
    if source.writable():
        source.flush()
    stack = ExitStack()
    descriptor = os.dup(source.fileno())
    stack.callback(os.close, descriptor)
    suffix = Path(source.name).suffix if isinstance(source.name, str) else ""
    file = VideoFile(descriptor, os.fstat(descriptor).st_size, suffix)
    return OpenedSource(name="the video", limits=limits, is_local=True, file=file, _stack=stack)


class _FileRanges:
    """A file object as a `ByteSource`; its position is put back after each read."""

    max_wait_s = math.inf

    def __init__(self, file: Any) -> None:  # noqa: ANN401 - whatever has read and seek
        self._file, self._lock = file, threading.Lock()
        with self._lock:
            before = file.tell()
            file.seek(0, io.SEEK_END)
            self.size_bytes: int = file.tell()  # which `seek` of a mapped file returns only from Python 3.13 on
            file.seek(before)

    def read(self, start: int, size: int) -> bytes:
        with self._lock:
            before = self._file.tell()
            try:
                self._file.seek(start)
                pieces = []
                while size and (piece := self._file.read(size)):
                    pieces.append(piece)
                    size -= len(piece)
                return b"".join(pieces)
            finally:
                self._file.seek(before)


class _FailureKeeper:
    """A source of ranges that stores the exception of a failed read."""

    def __init__(self, source: Any) -> None:  # noqa: ANN401 - a `ByteSource`, or nearly so
        self._source = source
        self.size_bytes = operator.index(source.size_bytes)
        self.max_wait_s: float = getattr(source, "max_wait_s", math.inf)
        self.failure: Exception | None = None
        if not self.size_bytes:
            raise VideoEmptyError("The video is empty: its source has no bytes.")

    def read(self, start: int, size: int) -> bytes:
        try:
            return bytes(self._source.read(start, size))
        except Exception as error:
            self.failure = error
            raise


def check_size(info: ObjectInfo, limits: Limits) -> None:
    """Raise VideoEmptyError or VideoTooLargeError if a video has no bytes, or more than `limits.max_video_bytes`."""
    if info.size_bytes == 0:
        raise VideoEmptyError(f"{redact_uri(info.uri)} is empty; upload it again.")
    if info.size_bytes > limits.max_video_bytes:
        raise VideoTooLargeError(
            f"The {info.size_bytes:,} bytes of {redact_uri(info.uri)} exceed extract.max_video_bytes "
            f"({limits.max_video_bytes:,})."
        )


@contextmanager
def opened_object(objects: ObjectStore, info: ObjectInfo, limits: Limits, **options: Any) -> Iterator[OpenedSource]:  # noqa: ANN401
    """Open a video for a `with` block, as `open_object` does, and convert errors about it in the body to VideoError."""
    with closing(open_object(objects, info, limits, **options)) as opened, opened.errors():
        yield opened


@contextmanager
def _video_errors() -> Iterator[None]:
    try:
        yield
    except ObjectChangedError as error:
        raise VideoChangedError(error.message) from None
    except ObjectMissingError as error:
        raise VideoMissingError(error.message) from None
    except ObjectTooLargeError as error:
        raise VideoTooLargeError(f"{error.message} See extract.max_video_bytes.") from None


def stat_video(objects: ObjectStore, uri: str) -> ObjectInfo:
    """Look up a video's size and fingerprint.

    Raises VideoError if it is missing, refused, unavailable, in a damaged archive, or too large to be measured where
    its server sends no length; LoginRefusedError if no video of its store can be read.
    """
    if not uri:  # which would be the working folder
        raise VideoMissingError("The path of the video is empty; name a file.")
    try:
        with objects.open(uri) as source:
            return source.info
    except MemberMissingError as error:
        raise VideoMissingError(error.message) from None
    except ObjectMissingError:
        path = objects.local_path(uri)
        if path is not None and os.path.isdir(path):  # noqa: PTH112 - unlike Path.is_dir, takes names that are too long
            raise VideoMissingError(f"{uri} is a folder, not a video; name a file in it.") from None
        raise VideoMissingError(f"There is no video at {redact_uri(uri)}; check the path or URI.") from None
    except ObjectTooLargeError as error:
        raise VideoTooLargeError(f"{error.message} Its server sends no length, so it was read to measure it.") from None
    except ObjectChangedError as error:
        raise VideoChangedError(error.message) from None
    except StoreUnavailableError:
        with faults_of_one_object(uri):
            raise
    except LoginRefusedError:
        raise
    except (ConfigurationError, ValueError) as error:
        # Caused by this video alone: access to the frame cache was checked before the run.
        message, shown = str(error), redact_uri(uri)
        raise VideoRefusedError(
            message if message.startswith(shown) else f"{shown} cannot be read: {message}"
        ) from None
