"""Reads and decodes a video in decoding processes, to detect its cuts."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel.errors import FallbackRequired
from reelabel.sampling.options import Sampling
from reelabel.sampling.spec import EVERY
from reelabel.segment import WHOLE
from reelabel.sources.opened import opened_object
from reelabel.sources.video_file import VideoFile
from tasks.description.scenes.change import SceneMethodError, Thumbnails

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.index import VideoIndex
    from reelabel.options import Limits
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.result import Frames
    from reelabel.segment import Segment, Windows
    from reelabel.sources.object_store import ObjectInfo, ObjectStore
    from reelabel.sources.sparse_file import ByteSource, CachedRange

THUMBNAIL_PIXELS = 48 * 27
_MS = 1000


@dataclass(slots=True, kw_only=True)
class Footage:
    """A video, or a segment of it, and the cost of reading it. Times are since the video's first frame."""

    video: VideoFile | ByteSource  # an open file, or the bytes of a video that is read in ranges
    pool: DecodePool
    limits: Limits
    segment: Segment = WHOLE
    bytes_read: int = 0  # if it is read in ranges
    frames_decoded: int = 0  # output by decoders
    _index: tuple[CachedRange, ...] = ()
    _first_ms: int = 0
    _packets: VideoIndex | None = field(default=None, repr=False)

    def packets(self) -> VideoIndex:
        """List the packets, without decoding.

        Raises:
            SceneMethodError: The container does not list them, or the segment has none.
            VideoError: The video cannot be opened.
        """
        if self._packets is None:
            try:
                listed, _, bytes_read = self.pool.read_index(self.video, limits=self.limits, lists="frames")
            except FallbackRequired as error:
                raise SceneMethodError(
                    f"The file does not list its packets ({error}), so cuts are detected only by embeddings."
                ) from None
            self.bytes_read += bytes_read
            self._first_ms = int(listed.times_ms[0])
            times_ms = listed.times_ms - self._first_ms
            inside = times_ms >= round((self.segment.start_s or 0.0) * _MS)
            if self.segment.end_s is not None:
                inside &= times_ms <= round(self.segment.end_s * _MS)
            if not inside.any():
                raise SceneMethodError("The segment has no frames.")
            self._packets = listed.part(inside, since_s=self._first_ms / _MS)
        return self._packets

    def thumbnails(self, windows: Windows) -> Thumbnails:
        """Decode every frame in some windows, at about 48 x 27 pixels.

        Raises:
            SceneMethodError: Byte ranges do not suffice.
            VideoError: The video cannot be decoded.
        """
        sampling = Sampling(sampler="uniform", num_frames=EVERY, max_pixels=THUMBNAIL_PIXELS, size_multiple_px=1)
        got = self._extract(sampling, windows)
        self.frames_decoded += got.cost.frames_decoded
        self.bytes_read += got.cost.bytes_fetched
        times_ms = np.round(got.selection.time_s * _MS).astype(np.int64) - self._first_ms
        return Thumbnails(images=got.unique, times_ms=times_ms)

    def _extract(self, sampling: Sampling, windows: Windows) -> Frames:
        how: dict[str, Any] = {
            "sampling": sampling,
            "limits": self.limits,
            "windows": windows,
            "skip_loop_filter": True,
        }
        if isinstance(self.video, VideoFile):
            return self.pool.extract(self.video, **how)
        try:
            got, self._index = self.pool.extract_by_ranges(self.video, known=self._index, **how)
        except FallbackRequired as error:
            raise SceneMethodError(f"The video cannot be read in ranges ({error}); download it first.") from None
        return got


@contextmanager
def open_footage(
    objects: ObjectStore, info: ObjectInfo, *, pool: DecodePool, limits: Limits, segment: Segment = WHOLE
) -> Iterator[Footage]:
    """Open one version of a video in any store.

    Raises:
        VideoError: The video can no longer be read, here or in the body.
        TransientError: The store is unavailable.
    """
    with opened_object(objects, info, limits) as opened:
        yield Footage(video=opened.ranges or opened.whole(), pool=pool, limits=limits, segment=segment)
