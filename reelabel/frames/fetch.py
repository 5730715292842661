"""Read a video's index or its frames, wherever it is: by ranges where that reads less, otherwise whole."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reelabel.errors import RangesIgnoredError, VideoError
from reelabel.frames.sparse import RecordingSource
from reelabel.index import VideoIndex, VideoInfo
from reelabel.sources.download_cache import DownloadCache
from reelabel.sources.index_keys import index_key
from reelabel.sources.opened import RANGES_MIN_BYTES, opened_object, stat_video
from reelabel.sources.sparse_file import CachedRange

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reelabel.frames.cache import FrameCache
    from reelabel.options import Limits
    from reelabel.pool.decode_pool import DecodePool, PieceDecoder
    from reelabel.result import Frames
    from reelabel.sampling.options import Sampling
    from reelabel.sources.object_store import ObjectInfo, ObjectStore
    from reelabel.sources.sparse_file import ByteSource
    from reelabel.sources.video_file import VideoFile

# Read before a decoding process is asked, so that more videos can be waited for than there are processes. It holds most
# headers whole; two blocks of a sparse file.
_HEAD_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFrames:
    """Extracted frames, and what was read for them.

    Attributes:
        frames: The frames; what they cost includes failed attempts, and the size of a local file.
        ranges: The ranges of the video that the frames were decoded from; empty if not requested, or all was read.
        refused_index: Why the index file in the cache could not be used, and was rewritten; empty if it was not.
    """

    frames: Frames
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
        copies: Where copies of whole videos are stored, for as long as they are decoded.
    """

    objects: ObjectStore
    pool: DecodePool
    limits: Limits
    cache: FrameCache | None = None
    ranges_min_bytes: int = RANGES_MIN_BYTES
    allow_roots: tuple[Path, ...] = ()
    copies: DownloadCache = field(default_factory=DownloadCache, repr=False, compare=False)

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
        with opened_object(self.objects, info, self.limits, allow_roots=self.allow_roots) as opened:
            if opened.ranges:
                return self._look_at_ranges(info, opened.ranges)
            index, _, _ = self.pool.read_index(opened.whole(), limits=self.limits, lists="keyframes")
            return SeenVideo(info=info, index=index, is_whole_read=not opened.is_local, bytes_read=opened.bytes_fetched)

    def _look_at_ranges(self, info: ObjectInfo, source: ByteSource) -> SeenVideo:
        is_small = info.size_bytes < self.ranges_min_bytes
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

    def fetch(
        self,
        info: ObjectInfo,
        sampling: Sampling,
        *,
        keep_ranges: bool = False,
        pieces: PieceDecoder | None = None,
        **options: Any,  # noqa: ANN401
    ) -> FetchedFrames:
        """Extract frames of one version of a video.

        Args:
            info: The video.
            sampling: Which frames to decode, and at what size.
            keep_ranges: Also return the ranges that are read; reads local and small videos by ranges as well.
            pieces: Decodes the video if the segment is one of several that follow each other.
            options: Fields of `reelabel.extract.Request`. With `as_stored` or `every`, the whole video is read.

        Raises:
            VideoError: The video cannot be used; see its code.
            TransientError: The store is unavailable.
        """
        is_whole = options.get("as_stored") or options.get("every") or (pieces is not None and pieces.is_in_order)
        options |= {"sampling": sampling, "limits": self.limits}
        key = index_key(source_uri=info.uri, fingerprint=info.fingerprint)
        ranges: tuple[CachedRange, ...] = ()
        refused = ""

        def by_ranges(source: ByteSource) -> Frames:
            nonlocal ranges, refused
            known = self.cache.find_index(key) if self.cache else ()
            recording = RecordingSource(source) if keep_ranges else None
            frames, header = self.pool.extract_by_ranges(recording or source, known=known, **options)
            refused = self.cache.write_index(key, header) if self.cache and not known else ""
            ranges = tuple(sorted([*known, *recording.ranges])) if recording else ()
            return frames

        def of_file(file: VideoFile) -> Frames:
            is_read = pieces is not None and pieces.pieces > 0  # by an earlier piece
            frames = (pieces or self.pool).extract(file, **options)
            return frames.knowing(bytes_fetched=info.size_bytes) if opened.is_local and not is_read else frames

        with opened_object(
            self.objects,
            info,
            self.limits,
            min_bytes=sys.maxsize if is_whole else self.ranges_min_bytes,
            always_by_ranges=keep_ranges and not is_whole,
            allow_roots=self.allow_roots,
            copies=self.copies,
        ) as opened:
            frames = opened.extract(by_ranges, of_file)
            opened.check_unchanged()
        return FetchedFrames(frames=frames, ranges=ranges, refused_index=refused)
