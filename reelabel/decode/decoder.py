"""The decoder of one open video, which lists its frames and decodes some, here or in a process of a pool."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from reelabel.containers.demux import open_video
from reelabel.containers.formats import missing_bytes, open_by_format
from reelabel.containers.stream_properties import check_frame_size, header_info
from reelabel.decode.canvas import Canvas, Decoded, frames_of
from reelabel.decode.gops import decode_gops, needed_ranges, no_other_index
from reelabel.decode.keyframes import KeyframeDecoder
from reelabel.decode.linear import LinearVideo
from reelabel.decode.read_index import list_keyframes, read_index, scan_file
from reelabel.decode.run_decoder import DecodeStats
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.segment import WHOLE, Segment
from reelabel.sources.sparse_file import ByteSource, CachedRange, SparseFile
from reelabel.sources.video_file import VideoFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from av.container import InputContainer
    from av.video.stream import VideoStream

    from reelabel.containers.container_format import OpenVideo
    from reelabel.decode.render import View
    from reelabel.index import Int64s, Lists, VideoIndex
    from reelabel.options import Limits

    Opened = tuple[InputContainer, VideoStream]

# How the frames of a video are found: by the container's index; by its packets, to decode GOPs; by its packets, to
# decode it from its beginning; by decoding it.
Way: TypeAlias = Literal["container", "packets", "announced", "decode"]


class Reads(Protocol):
    """The bytes that were read of a remote video, and the time spent waiting for them."""

    bytes_fetched: int
    wait_s: float


class Decoder(Protocol):
    """An open video: its frames are listed in one way, and some of those listed last are decoded.

    Every method raises FallbackRequired if another way is needed, and VideoError if the video is at fault. `ranges` is
    None for a file. `known` are the ranges of a remote video that hold its header and index, so that these need not be
    read again.
    """

    @property
    def ranges(self) -> Reads | None: ...
    @property
    def frames_decoded(self) -> int: ...
    @property
    def known(self) -> tuple[CachedRange, ...]: ...

    def read_header(self, lists: Lists, *, of_any_size: bool = False) -> VideoIndex:
        """List frames or keyframes, but not for `decode`, as `reelabel.decode.read_index.read_index` does."""

    def list_keyframes(self) -> VideoIndex:
        """List the keyframes, by the container's index, else those of a local file by its packets."""

    def list_frames(self, way: Way, lists: Lists, segment: Segment = WHOLE, *, in_pieces: bool = False) -> VideoIndex:
        """List frames or keyframes, those around a segment at least.

        With `in_pieces`, segments follow each other, so that one pass for all is better than a scan for each.
        """

    def list_announced(self) -> VideoIndex:
        """List the frames that the packets announce, some of which a linear decode may not show."""

    def decode(self, indices: Int64s, view: View) -> Decoded:
        """Decode the frames at some indices into `VideoIndex.order`, ascending, of the last `list_frames`."""


class LocalDecoder:
    """A `Decoder` in this process, which a malicious video may take over; close it afterwards."""

    def __init__(self, file: VideoFile | SparseFile, limits: Limits, *, threads: int = 1) -> None:
        self._file, self._limits, self._threads = file, limits, threads
        self.ranges = file if isinstance(file, SparseFile) else None
        self.known: tuple[CachedRange, ...] = ()
        self._open = ExitStack()  # what was listed last
        self._stream: VideoStream | None = None
        self._stats = DecodeStats()
        self._decode: Callable[[Int64s, View], Decoded] | None = None
        self._keyframes: VideoIndex | str | None = None  # or why they are not listed
        self._linear: LinearVideo | None = None
        self._linear_way: Way | None = None

    @property
    def frames_decoded(self) -> int:
        return self._stats.frames

    def close(self) -> None:
        self._open.close()
        if self._linear:
            self._linear.close()

    def read_header(self, lists: Lists, *, of_any_size: bool = False) -> VideoIndex:
        index, self.known = read_index(self._file, self._limits, lists=lists, of_any_size=of_any_size)
        return index

    def list_keyframes(self) -> VideoIndex:
        with self._errors():
            if self._keyframes is None:
                index = list_keyframes(self._file, self._limits)
                self._keyframes = index or "the keyframes of the file are not listed"
            if isinstance(self._keyframes, str):
                raise FallbackRequired(self._keyframes)
            return self._keyframes

    def list_frames(self, way: Way, lists: Lists, segment: Segment = WHOLE, *, in_pieces: bool = False) -> VideoIndex:
        self._open.close()
        self._stream = self._decode = None
        with self._errors():
            if way == "container" and lists == "keyframes":
                return self._list_keyframes(segment)
            if way == "container":
                return self._list_by_container(segment, in_pieces=in_pieces)
            return self._list_by_packets() if way == "packets" else self._list_linearly(way)

    def list_announced(self) -> VideoIndex:
        with self._errors():
            assert self._linear is not None
            if self._linear.announced is None:
                raise FallbackRequired("packets do not announce the frames")
            return self._linear.announced

    def decode(self, indices: Int64s, view: View) -> Decoded:
        assert self._decode is not None
        with self._errors():
            decoded = self._decode(indices, view)
            return replace(decoded, missing_bytes=missing_bytes(self._file), frames_decoded=self._stats.frames)

    def _list_keyframes(self, segment: Segment) -> VideoIndex:
        with _header_errors():
            try:
                video = self._enter()
            except FallbackRequired as error:
                error.linear_only = False  # a pass over all packets may find the keyframes
                raise
            decoder = KeyframeDecoder.of(video)
        if self.ranges:
            missing_bytes(self._file)  # what this reads belongs to the header
            self.known = self.ranges.extents

        def decode(indices: Int64s, view: View) -> Decoded:
            with _header_errors():
                return decoder.decode(indices, view, self._stats, segment=segment, threads=self._threads)

        self._decode = decode
        return decoder.index

    def _list_by_container(self, segment: Segment, *, in_pieces: bool) -> VideoIndex:
        if self.ranges:
            self.ranges.allow_whole_if_small()
        with _header_errors():
            try:
                video = self._enter(with_offsets=self.ranges is not None)
            except FallbackRequired as error:  # for example, a fragmented MP4 has no index at all
                error.linear_only |= in_pieces and not segment.is_whole
                raise
            if not video.stream.average_rate:  # which FFmpeg would guess from the first frames
                raise FallbackRequired("the header has no frame rate")
            index = video.read_frames(segment)
        codec = video.stream.codec_context
        size = (codec.width, codec.height) if video.format.is_header_sufficient else None

        def decode(indices: Int64s, view: View) -> Decoded:
            if self.ranges:
                self.ranges.end_of_header()
                self.known = self.ranges.index
                with no_other_index():
                    self.ranges.prefetch(needed_ranges(index, indices))
            with _header_errors():
                return self._decode_gops((video.container, video.stream), index, indices, view, video.reopen, size)

        self._decode = decode
        return _check_certain(index)

    def _list_by_packets(self) -> VideoIndex:
        index = scan_file(self._file, self._limits, all_shown=True)
        # Reopened: demuxing to the end may have left state behind that a fresh demuxer would not have.
        reopen = partial(open_video, self._file, self._limits, strictly=True)
        opened = self._open.enter_context(reopen())
        self._stream = opened[1]
        self._decode = lambda indices, view: self._decode_gops(opened, index, indices, view, reopen)
        return _check_certain(index)

    def _list_linearly(self, way: Way) -> VideoIndex:
        if self._linear is None or self._linear_way != way:
            if self._linear:
                self._linear.close()
            by_packets = way == "announced"
            self._linear = LinearVideo(self._file, self._limits, self._stats, by_packets=by_packets)
            self._linear_way = way
        self._decode = self._linear.decode
        return self._linear.index

    def _decode_gops(
        self,
        opened: Opened,
        index: VideoIndex,
        indices: Int64s,
        view: View,
        reopen: Callable[[], AbstractContextManager[Opened]],
        size: tuple[int, int] | None = None,
    ) -> Decoded:
        canvas = Canvas(frames_of(index, indices), view, self._limits, partial(header_info, *opened), size=size)
        decode_gops(
            opened,
            index,
            canvas,
            reopen,
            self._stats,
            threads=self._threads,
            is_remote=self.ranges is not None,
            skip_loop_filter=view.skip_loop_filter,
        )
        return canvas.finish(index.position[indices])

    def _enter(self, *, with_offsets: bool = False) -> OpenVideo:
        opened = open_by_format(self._file, self._limits, strictly=True, with_offsets=with_offsets)
        video = self._open.enter_context(opened)
        self._stream = video.stream
        return video

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
            if self.ranges:
                self.ranges.wait()
                if self.ranges.failure:  # which FFmpeg may have treated as the end of the file
                    raise self.ranges.failure  # noqa: TRY301 - as in the block
        except MemoryError:
            if self._stream:  # the HEVC decoder also reports a frame over the limit as out of memory
                codec = self._stream.codec_context
                check_frame_size(codec.width, codec.height, self._limits)
            raise
        except Exception as error:  # noqa: BLE001 - whatever the source raised
            failure = self.ranges.failure if self.ranges else None
            cause = failure or error
            if isinstance(cause, FallbackRequired):
                cause.linear_only &= failure is None
                cause.bytes_fetched = self.ranges.bytes_fetched if self.ranges else 0
                cause.frames_decoded = self.frames_decoded
            raise cause from None


def open_decoder(
    video: VideoFile | ByteSource, limits: Limits, *, threads: int = 1, known: tuple[CachedRange, ...] = ()
) -> LocalDecoder:
    """Return a decoder of an open file, or of a video that is read by ranges, of which some may be `known` already."""
    if isinstance(video, VideoFile):
        return LocalDecoder(video, limits, threads=threads)
    return LocalDecoder(SparseFile(video, known), limits, threads=threads)


@contextmanager
def _header_errors() -> Iterator[None]:
    try:
        yield
    except VideoUnreadableError:
        raise FallbackRequired("the container cannot be opened from its header alone") from None


def _check_certain(index: VideoIndex) -> VideoIndex:
    if index.doubt:
        raise FallbackRequired(index.doubt)
    return index
