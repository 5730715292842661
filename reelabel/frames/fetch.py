"""Frames of one version of a video, wherever it is: read by ranges where that reads less, otherwise whole."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reelabel.frames.sparse import RecordingSource
from reelabel.sources.download_cache import DownloadCache
from reelabel.sources.object_info import index_key
from reelabel.sources.opened import RANGES_MIN_BYTES, opened_object

if TYPE_CHECKING:
    from reelabel.frames.cache import FrameCache
    from reelabel.options import Limits
    from reelabel.pool.decode_pool import DecodePool, PieceDecoder
    from reelabel.result import Frames
    from reelabel.sampling.options import Sampling
    from reelabel.sources.object_store import ObjectInfo, ObjectStore
    from reelabel.sources.sparse_file import ByteSource, CachedRange
    from reelabel.sources.video_file import VideoFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFrames:
    """Extracted frames, and what was read for them; their cost includes failed attempts, and the size of a local file.

    Attributes:
        ranges: The ranges of the video that the frames were decoded from; empty if not requested, or all was read.
        refused_index: Why the index file in the cache could not be used, and was rewritten; empty if it was not.
    """

    frames: Frames
    ranges: tuple[CachedRange, ...] = ()
    refused_index: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoReader:
    """Reads videos, wherever they are. Thread-safe.

    Remote ones of at least `ranges_min_bytes` are read by ranges. Index files are kept in `cache` for reuse, and copies
    of whole videos in `copies` for as long as they are decoded.
    """

    objects: ObjectStore
    pool: DecodePool
    limits: Limits
    cache: FrameCache | None = None
    ranges_min_bytes: int = RANGES_MIN_BYTES
    copies: DownloadCache = field(default_factory=DownloadCache, repr=False, compare=False)

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
            options: Fields of `reelabel.extract.Request`. With `as_stored`, the whole video is read.

        Raises VideoError, and TransientError if the store is unavailable.
        """
        is_whole = options.get("as_stored") or (pieces is not None and pieces.is_in_order)
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
            return frames.with_selection(bytes_fetched=info.size_bytes) if opened.is_local and not is_read else frames

        with opened_object(
            self.objects,
            info,
            self.limits,
            min_bytes=sys.maxsize if is_whole else self.ranges_min_bytes,
            always_by_ranges=keep_ranges and not is_whole,
            copies=self.copies,
        ) as opened:
            frames = opened.extract(by_ranges, of_file)
            opened.check_unchanged()
        return FetchedFrames(frames=frames, ranges=ranges, refused_index=refused)
