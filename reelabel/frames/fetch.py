"""Read a video's index or its frames, wherever it is: by ranges where that reads less, otherwise whole."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

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
from reelabel.frames.cache_key import index_key
from reelabel.frames.download_cache import DownloadCache
from reelabel.frames.sparse import RecordingSource
from reelabel.index import VideoIndex, VideoInfo
from reelabel.segment import WHOLE
from reelabel.sources.local import FileSource
from reelabel.sources.object_info import INLINE_SCHEME, path_hint, redact_uri, scheme_of
from reelabel.sources.source import faults_of_one_object
from reelabel.sources.sparse_file import CachedRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from reelabel.frames.cache import FrameCache
    from reelabel.limits import Limits
    from reelabel.pool.decode_pool import DecodePool, PieceDecoder
    from reelabel.result import Frames
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from reelabel.sources.object_store import ObjectInfo, ObjectStore
    from reelabel.sources.source import Source
    from reelabel.sources.video_file import VideoFile


# Read before a decoding process is asked, so that more videos can be waited for than there are processes. It holds most
# headers whole; two blocks of a sparse file.
_HEAD_BYTES = 32 * 1024
# Below this size, one request for the whole file is faster than several small ones in sequence.
RANGES_MIN_BYTES = 2 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFrames:
    """Extracted frames, and what fetching them took.

    Attributes:
        frames: The frames.
        fetch_ms: Milliseconds spent waiting for the store.
        bytes_fetched: Bytes read from it, including those of failed attempts.
        ranges: The ranges of the video that the frames were decoded from; empty if not requested, or all was read.
        refused_index: Why the index file in the cache could not be used, and was rewritten; empty if it was not.
    """

    frames: Frames
    fetch_ms: float
    bytes_fetched: int
    ranges: tuple[CachedRange, ...] = ()
    refused_index: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVideo:
    """A video whose header and index were read.

    Attributes:
        info: Its size and fingerprint.
        index: Its index.
        is_whole_read: Whether a run reads the whole file, whichever frames it needs.
        bytes_read: Bytes read to find out.
    """

    info: ObjectInfo
    index: VideoIndex
    is_whole_read: bool
    bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoReader:
    """Reads videos, wherever they are. Thread-safe.

    Attributes:
        objects: The object store, web and local files, by URI.
        pool: The decoding pool, whose processes alone parse files.
        limits: Limits on one video.
        cache: Where index files are kept for reuse; None keeps none.
        ranges_min_bytes: Size from which remote videos are read by range requests.
        allow_roots: Folders that local videos must lie in; empty allows every folder.
    """

    objects: ObjectStore
    pool: DecodePool
    limits: Limits
    cache: FrameCache | None = None
    ranges_min_bytes: int = RANGES_MIN_BYTES
    allow_roots: tuple[Path, ...] = ()

    def stat_many(self, uris: Iterable[str]) -> dict[str, ObjectInfo]:
        """Look up sizes and fingerprints of many videos, as `ObjectStore.stat_many` does."""
        return self.objects.stat_many(uris)

    def look(self, uri: str, info: ObjectInfo | None = None) -> SeenVideo:
        """Read a video's header and index.

        Raises:
            VideoError: The video cannot be used, as far as these show; see its code.
            TransientError: The store is unavailable.
        """
        info = info or stat_video(self.objects, uri, allow_roots=self.allow_roots)
        try:
            return self._look(info)
        except VideoError as error:
            error.fingerprint = info.fingerprint
            raise

    def _look(self, info: ObjectInfo) -> SeenVideo:
        check_size(info, self.limits)
        with open_video(self.objects, info, allow_roots=self.allow_roots) as source:
            if not isinstance(source, FileSource):
                return self._look_at_ranges(info, source)
            index, _, _ = self.pool.read_index(source.as_video(), limits=self.limits, lists="keyframes")
            return SeenVideo(info=info, index=index, is_whole_read=False, bytes_read=0)

    def _look_at_ranges(self, info: ObjectInfo, source: Source) -> SeenVideo:
        is_small = info.size_bytes < self.ranges_min_bytes or scheme_of(info.uri) == INLINE_SCHEME
        cache = None if is_small else self.cache
        key = index_key(source_uri=info.uri, fingerprint=info.fingerprint)
        known = cache.find_index(key) if cache else ()
        head: tuple[CachedRange, ...] = ()
        try:
            if not known:
                head = (CachedRange(0, source.read(0, min(_HEAD_BYTES, info.size_bytes))),)
            index, ranges, bytes_read = self.pool.read_index(
                source, limits=self.limits, lists="keyframes", known=known or head
            )
        except RangesIgnoredError as error:
            nothing = VideoIndex(info=VideoInfo(), kind="container", lists="keyframes", note=error.message)
            return SeenVideo(info=info, index=nothing, is_whole_read=True, bytes_read=0)
        if cache and ranges and not known:
            cache.write_index(key, ranges)
        return SeenVideo(
            info=info,
            index=index,
            is_whole_read=is_small or not index.is_listed,
            bytes_read=bytes_read + sum(len(part.data) for part in head),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFetcher(VideoReader):
    """Fetches and decodes videos. Thread-safe.

    Attributes:
        sampling: Which frames to decode, and at what size.
        native: Leave frames unscaled and unrotated; reads the whole video.
        every: Return all keyframes instead of picks; reads the whole video.
        copies: Where copies of whole videos are stored.
        keep_ranges: Also return the ranges that are read; reads local and small videos by ranges as well.
        segment: The part of the video to sample from.
        pieces: Decodes the video if the segment is one of several that follow each other.
    """

    sampling: Sampling
    native: bool = False
    every: bool = False
    copies: DownloadCache = field(default_factory=DownloadCache)
    keep_ranges: bool = False
    segment: Segment = WHOLE
    pieces: PieceDecoder | None = None

    @classmethod
    def of(cls, reader: VideoReader, **more: Any) -> Self:  # noqa: ANN401 - fields of the class
        """Return what fetches videos as another reader reads them; `more` are its own fields."""
        return cls(**{each.name: getattr(reader, each.name) for each in fields(VideoReader)}, **more)

    def fetch(self, info: ObjectInfo) -> FetchedFrames:
        """Extract frames of one version of a video.

        Raises:
            VideoError: The video cannot be used; see its code.
            TransientError: The store is unavailable.
        """
        check_size(info, self.limits)
        with open_video(self.objects, info, allow_roots=self.allow_roots) as source:
            fetched = self._fetch(info, source)
            source.check_unchanged()
            return fetched

    def _fetch(self, info: ObjectInfo, source: Source) -> FetchedFrames:
        wasted_bytes = wasted_frames = 0
        if self._should_use_ranges(info, is_local=isinstance(source, FileSource)):
            try:
                return self._fetch_ranges(info, source)
            except FallbackRequired as error:
                wasted_bytes, wasted_frames = error.bytes_fetched, error.frames_decoded
            except RangesIgnoredError:
                pass
        if isinstance(source, FileSource):
            is_read = self.pieces is not None and self.pieces.pieces > 0  # by an earlier piece
            fetched = self._decode(source.as_video(), bytes_fetched=0 if is_read else info.size_bytes)
        else:
            fetched = self._fetch_whole(source, wasted_bytes)
        decoded = fetched.frames.cost.frames_decoded
        return replace(fetched, frames=fetched.frames.knowing(frames_decoded=decoded + wasted_frames))

    def _should_use_ranges(self, info: ObjectInfo, *, is_local: bool) -> bool:
        if self.native or self.every or scheme_of(info.uri) == INLINE_SCHEME:
            return False
        if self.pieces and self.pieces.is_in_order:
            return False
        return self.keep_ranges or (not is_local and info.size_bytes >= self.ranges_min_bytes)

    def _fetch_ranges(self, info: ObjectInfo, source: Source) -> FetchedFrames:
        key = index_key(source_uri=info.uri, fingerprint=info.fingerprint)
        known = self.cache.find_index(key) if self.cache else ()
        recording = RecordingSource(source) if self.keep_ranges else None
        frames, header = self.pool.extract_by_ranges(
            recording or source, sampling=self.sampling, limits=self.limits, known=known, segment=self.segment
        )
        refused = self.cache.write_index(key, header) if self.cache and not known else ""
        return FetchedFrames(
            frames=frames,
            fetch_ms=frames.cost.fetch_ms,
            bytes_fetched=frames.cost.bytes_fetched,
            ranges=tuple(sorted([*known, *recording.ranges])) if recording else (),
            refused_index=refused,
        )

    def _fetch_whole(self, source: Source, wasted_bytes: int) -> FetchedFrames:
        started = time.perf_counter()
        copied = self.copies.local_copy(source, max_bytes=self.limits.max_video_bytes)
        with copied as copy:
            fetch_ms = (time.perf_counter() - started) * 1e3
            return self._decode(copy.path, fetch_ms=fetch_ms, bytes_fetched=wasted_bytes + copy.bytes_fetched)

    def _decode(self, video: Path | VideoFile, *, fetch_ms: float = 0.0, bytes_fetched: int) -> FetchedFrames:
        if self.pieces:
            frames = self.pieces.extract(video, sampling=self.sampling, limits=self.limits, segment=self.segment)
        else:
            frames = self.pool.extract(
                video,
                sampling=self.sampling,
                limits=self.limits,
                native=self.native,
                every=self.every,
                segment=self.segment,
            )
        return FetchedFrames(frames=frames, fetch_ms=fetch_ms, bytes_fetched=bytes_fetched)


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
def video_errors() -> Iterator[None]:
    """Convert errors of the object that holds a video into errors of that video alone."""
    try:
        yield
    except ObjectChangedError as error:
        raise VideoChangedError(error.message) from None
    except ObjectMissingError as error:
        raise VideoMissingError(error.message) from None
    except ObjectTooLargeError as error:
        raise VideoTooLargeError(f"{error.message} See extract.max_video_bytes.") from None


@contextmanager
def open_video(objects: ObjectStore, info: ObjectInfo, *, allow_roots: tuple[Path, ...] = ()) -> Iterator[Source]:
    """Open one version of a video for a `with` block, and convert errors about it, also of the body.

    Raises:
        VideoError: It cannot be read any more.
    """
    with video_errors(), ExitStack() as stack:
        with faults_of_one_object(info.uri):
            source = stack.enter_context(objects.open(info.uri, allow_roots, known=info))
        try:
            yield source
        except VideoError as error:
            if error.stage == "decode":  # perhaps because parts of two versions were decoded
                source.check_unchanged()
            raise


def stat_video(objects: ObjectStore, uri: str, *, allow_roots: tuple[Path, ...] = ()) -> ObjectInfo:
    """Look up a video's size and fingerprint.

    Raises:
        VideoMissingError: There is no video at the URI.
        VideoRefusedError: The video may not be read, or the URI is not a valid source.
        VideoTooLargeError: The server reports no length, and the video is too large to be read to find out.
        VideoUnavailableError: The web server does not serve it.
        ArchiveUnreadableError: Its archive is damaged, or it cannot be read from there.
        VideoChangedError: Its archive was replaced while its index was being read.
        LoginRefusedError: The store refuses the login, so that no video can be read there.
    """
    try:
        with objects.open(uri, allow_roots) as source:
            return source.info
    except MemberMissingError as error:
        raise VideoMissingError(error.message) from None
    except ObjectMissingError:
        path = objects.local_path(uri)
        if path is not None and os.path.isdir(path):  # noqa: PTH112 - unlike Path.is_dir, takes names that are too long
            raise VideoMissingError(f"{uri} is a folder, not a video; name a file in it.") from None
        advice = path_hint(uri) or "; check the path or URI"
        raise VideoMissingError(f"There is no video at {redact_uri(uri)}{advice}.") from None
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
