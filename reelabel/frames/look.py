"""Look at a video's header and index, wherever it is, and store the index for the run that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reelabel.decode.keyframe_table import KeyframeTable
from reelabel.errors import RangesIgnoredError, VideoError
from reelabel.frames.cache_key import index_key
from reelabel.frames.fetch import (
    RemoteVideo,
    VideoReader,
    as_video_errors,
    check_size,
    isolate_refusal,
    stat_video,
)
from reelabel.index import VideoIndex, VideoInfo
from reelabel.sources.object_info import INLINE_SCHEME, scheme_of
from reelabel.sources.sparse_file import CachedRange
from reelabel.sources.video_file import LocalFile

if TYPE_CHECKING:
    from reelabel.sources.archives.members import ArchiveMember
    from reelabel.sources.object_store import ObjectInfo

# Read before a decoding process is asked, so that more videos can be waited for than there are processes. It holds most
# headers whole; two blocks of a sparse file.
_HEAD_BYTES = 32 * 1024


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


class IndexReader(VideoReader):
    """Reads the indexes of videos. Thread-safe."""

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
        with as_video_errors(), isolate_refusal():
            if self.objects.local_path(info.uri) is None:
                return self._look_at_remote(info, RemoteVideo(self.objects, info))
            with self.objects.open_local(info.uri, self.allow_roots) as file:
                file.info.require(fingerprint=info.fingerprint, max_bytes=None)
                if not isinstance(file, LocalFile):
                    return self._look_at_remote(info, file)
                index, _, _ = self.pool.read_index(file.as_video(), limits=self.limits, lists="keyframes")
                return SeenVideo(info=info, index=index, is_whole_read=False, bytes_read=0)

    def _look_at_remote(self, info: ObjectInfo, video: RemoteVideo | ArchiveMember) -> SeenVideo:
        is_small = info.size_bytes < self.ranges_min_bytes or scheme_of(info.uri) == INLINE_SCHEME
        cache = None if is_small else self.cache
        key = index_key(source_uri=info.uri, fingerprint=info.fingerprint)
        known = cache.find_index(key) if cache else ()
        if isinstance(known, KeyframeTable):
            return SeenVideo(info=info, index=known.index, is_whole_read=False, bytes_read=0)
        head: tuple[CachedRange, ...] = ()
        try:
            if not known:
                head = (CachedRange(0, video.read(0, min(_HEAD_BYTES, info.size_bytes))),)
            index, ranges, bytes_read = self.pool.read_index(
                video, limits=self.limits, lists="keyframes", known=known or head
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
