"""The index of a video, wherever it is, and how much a run reads of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reelabel.errors import RangesIgnoredError, VideoError
from reelabel.index import HeaderInfo, VideoIndex
from reelabel.sources.object_info import index_key
from reelabel.sources.opened import opened_object, stat_video
from reelabel.sources.sparse_file import CachedRange

if TYPE_CHECKING:
    from reelabel.frames.fetch import VideoReader
    from reelabel.sources.object_store import ObjectInfo
    from reelabel.sources.sparse_file import ByteSource

# Read before a decoding process is acquired, so that more videos can wait for their store than there are processes.
# Most headers fit; two blocks of a sparse file.
_HEAD_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedVideo:
    """A video whose header and index were read.

    Attributes:
        info: Its size and fingerprint.
        index: Its index.
        is_whole_read: Whether a run reads the whole file, whichever frames it needs.
        bytes_read: Bytes read for the header and the index.
    """

    info: ObjectInfo
    index: VideoIndex
    is_whole_read: bool
    bytes_read: int


def look_at(reader: VideoReader, uri: str, info: ObjectInfo | None = None) -> IndexedVideo:
    """Read a video's header and index, which the reader's cache keeps; `info` is its size and fingerprint, if known.

    Raises:
        VideoError: The video cannot be used, as far as these show; see its code.
        TransientError: The store is unavailable.
    """
    info = info or stat_video(reader.objects, uri)
    try:
        with opened_object(reader.objects, info, reader.limits) as opened:
            if opened.ranges:
                return _read_ranges(reader, info, opened.ranges)
            index, _, _ = reader.pool.read_index(opened.whole(), limits=reader.limits, lists="keyframes")
            is_whole_read, bytes_read = not opened.is_local, opened.bytes_fetched
            return IndexedVideo(info=info, index=index, is_whole_read=is_whole_read, bytes_read=bytes_read)
    except VideoError as error:
        error.fingerprint = info.fingerprint
        raise


def _read_ranges(reader: VideoReader, info: ObjectInfo, source: ByteSource) -> IndexedVideo:
    is_small = info.size_bytes < reader.ranges_min_bytes
    cache = None if is_small else reader.cache
    key = index_key(source_uri=info.uri, fingerprint=info.fingerprint)
    known = cache.find_index(key) if cache else ()
    head: tuple[CachedRange, ...] = ()
    try:
        if not known:
            head = (CachedRange(0, source.read(0, min(_HEAD_BYTES, info.size_bytes))),)
        index, ranges, bytes_read = reader.pool.read_index(
            source, limits=reader.limits, lists="keyframes", known=known or head
        )
    except RangesIgnoredError as error:
        nothing = VideoIndex(info=HeaderInfo(), kind="container", lists="keyframes", note=error.message)
        return IndexedVideo(info=info, index=nothing, is_whole_read=True, bytes_read=0)
    if cache and ranges and not known:
        cache.write_index(key, ranges)
    return IndexedVideo(
        info=info,
        index=index,
        is_whole_read=is_small or not index.is_listed,
        bytes_read=bytes_read + sum(len(part.data) for part in head),
    )
