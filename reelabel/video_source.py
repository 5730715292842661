"""A video that a user names, wherever it is, opened for decoding."""

from __future__ import annotations

import io
import math
import os
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from reelabel.errors import VideoEmptyError, VideoTooLargeError
from reelabel.sources.object_info import INLINE_SCHEME, redact_uri, scheme_of, split_member
from reelabel.sources.sparse_file import SMALL_BYTES, ByteRange, ByteSource, read_ranges
from reelabel.sources.video_file import VideoFile, open_video_file, video_in_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.limits import Limits
    from reelabel.sources.object_store import ObjectStore
    from reelabel.sources.source import Source

VideoSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | ByteSource

_PIECE_BYTES = 4 * 1024**2
_PIECES_AT_ONCE = 8


@dataclass(slots=True, kw_only=True)
class OpenedSource:
    """The bytes of one video: an open file, or something else of which ranges are read. Thread-safe.

    Attributes:
        name: What the user called it, without secrets.
        limits: Limits on its size.
        ranges: The source of ranges; None for a file, and for a small object, which is read whole.
        bytes_fetched: Bytes copied from it so far, because ranges did not suffice.
        fetch_ms: Milliseconds that this took.
    """

    name: str
    limits: Limits
    ranges: ByteSource | None = None
    bytes_fetched: int = 0
    fetch_ms: float = 0.0
    _file: VideoFile | None = None
    _remote: Source | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def file(self) -> VideoFile | None:
        """The file; None while only ranges can be read."""
        return self._file

    def whole(self) -> VideoFile:
        """Return the file, after copying it from the source of ranges, once.

        Raises:
            VideoTooLargeError: It exceeds the limits.
            Exception: Whatever the source raises.
        """
        with self._lock:
            if self._file is None:
                started = time.perf_counter()
                with self.errors():
                    self._file = self._copy_object(self._remote) if self._remote else self._copy_ranges()
                self.bytes_fetched, self.fetch_ms = self._file.size_bytes, (time.perf_counter() - started) * 1e3
            return self._file

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert errors of a store into errors of the video."""
        if self.ranges is None and self._remote is None:
            yield
            return
        from reelabel.frames.fetch import video_errors  # noqa: PLC0415 - a file needs no store

        with video_errors():
            yield

    def close(self) -> None:
        """Close the file, and remove a copy."""
        self._stack.close()

    def _copy_object(self, source: Source) -> VideoFile:
        from reelabel.frames.download_cache import DownloadCache  # noqa: PLC0415

        copied = DownloadCache(memory_bytes=SMALL_BYTES).local_copy(source, max_bytes=self.limits.max_video_bytes)
        return self._stack.enter_context(open_video_file(self._stack.enter_context(copied).path))

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
        return VideoFile(copy.fileno(), size)


def open_source(source: VideoSource, *, store: ObjectStore | None, limits: Limits) -> OpenedSource:
    """Open what a user names as a video, as `reelabel.open` does; nothing but its size is read."""
    if isinstance(source, str) and (store or not _is_file(source)):
        return _open_uri(source, store, limits)
    if isinstance(source, str | os.PathLike):
        return _of_file(os.fspath(source), limits, open_video_file(Path(source)))
    if isinstance(source, bytes | bytearray | memoryview):
        return _of_file("the video", limits, video_in_memory(bytes(source)))
    if hasattr(source, "size_bytes") and hasattr(source, "read"):
        return OpenedSource(name="the video", limits=limits, ranges=_Checked(source))
    if hasattr(source, "read") and hasattr(source, "seek"):
        return _open_file_object(source, limits)
    raise TypeError(
        f"A video is a path, a URI, bytes, a seekable binary file or a byte source, not {type(source).__name__}."
    )


def _is_file(uri: str) -> bool:
    is_path = scheme_of(uri) is None and split_member(uri) is None
    return is_path and os.path.isfile(uri)  # noqa: PTH113 - unlike Path.is_file, takes names that are too long


def _of_file(name: str, limits: Limits, opened: Any) -> OpenedSource:  # noqa: ANN401 - a context manager
    with ExitStack() as stack:
        file = stack.enter_context(opened)
        return OpenedSource(name=name, limits=limits, _file=file, _stack=stack.pop_all())


def _open_uri(uri: str, store: ObjectStore | None, limits: Limits) -> OpenedSource:
    from reelabel.frames.fetch import (  # noqa: PLC0415 - a file needs no store
        RANGES_MIN_BYTES,
        check_size,
        open_video,
        stat_video,
    )
    from reelabel.sources.local import FileSource  # noqa: PLC0415
    from reelabel.sources.object_store import ObjectStore  # noqa: PLC0415

    objects = store or ObjectStore()
    info, name = stat_video(objects, uri), redact_uri(uri)
    check_size(info, limits)
    with ExitStack() as stack:
        video = stack.enter_context(open_video(objects, info))
        if scheme_of(uri) == INLINE_SCHEME:
            return _of_file(name, limits, video_in_memory(b"".join(video.pieces())))
        if isinstance(video, FileSource):
            return OpenedSource(name=name, limits=limits, _file=video.as_video(), _stack=stack.pop_all())
        ranges = None if info.size_bytes < RANGES_MIN_BYTES else _Checked(video)
        return OpenedSource(name=name, limits=limits, ranges=ranges, _remote=video, _stack=stack.pop_all())


def _open_file_object(source: Any, limits: Limits) -> OpenedSource:  # noqa: ANN401 - whatever has read and seek
    if isinstance(source, io.TextIOBase):
        raise TypeError("The file is open as text; open it with mode 'rb'.")
    if isinstance(source, io.BytesIO):
        return _of_file("the video", limits, video_in_memory(source.getvalue()))
    if isinstance(source, io.RawIOBase | io.BufferedIOBase):
        try:
            descriptor = os.dup(source.fileno())
        except OSError:  # it is no file of the system
            pass
        else:
            stack = ExitStack()
            stack.callback(os.close, descriptor)
            if source.writable():
                source.flush()
            size = os.fstat(descriptor).st_size
            suffix = Path(name).suffix if isinstance(name := getattr(source, "name", ""), str) else ""
            return OpenedSource(
                name="the video", limits=limits, _file=VideoFile(descriptor, size, suffix), _stack=stack
            )
    return OpenedSource(name="the video", limits=limits, ranges=_Checked(_FileRanges(source)))


class _FileRanges:
    """A file object as a `ByteSource`; its position is put back after each read."""

    max_wait_s = math.inf

    def __init__(self, file: Any) -> None:  # noqa: ANN401 - whatever has read and seek
        self._file, self._lock = file, threading.Lock()
        with self._lock:
            before = file.tell()
            self.size_bytes: int = file.seek(0, io.SEEK_END)
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


class _Checked:
    """A source of ranges that remembers why it failed."""

    def __init__(self, source: Any) -> None:  # noqa: ANN401 - a `ByteSource`, or nearly so
        self._source = source
        self.size_bytes: int = source.size_bytes
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
