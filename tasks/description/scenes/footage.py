"""A video for scene detectors, read and decoded by the decoding processes."""

from __future__ import annotations

import itertools
import math
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import FallbackRequired, SamplingRefusedError
from reelabel.frames.fetch import RemoteVideo, as_video_errors, isolate_refusal
from reelabel.sampling.options import Sampling
from reelabel.sampling.spec import EVERY
from reelabel.segment import Segment
from reelabel.sources.video_file import LocalFile, VideoFile
from tasks.description.scenes.change import SceneMethodError, Thumbnails

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from reelabel.index import VideoIndex
    from reelabel.limits import Limits
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.sampled_frames import SampledFrames
    from reelabel.segment import Windows
    from reelabel.sources.object_store import ObjectInfo, ObjectStore
    from reelabel.sources.sparse_file import ByteSource
    from reelabel.strategies.keyframe_table import SavedIndex
    from tasks.description.scenes.change import Footage

THUMBNAIL_PIXELS = 48 * 27
_MS = 1000
_PIECE_BYTES = 128 * 1024**2  # of pixels that are held at once
_MOST_FPS = 60.0  # of videos that do not list their frames; a piece of a faster one holds more


@dataclass(slots=True, kw_only=True)
class PooledFootage:
    """A video and what reading it has cost; see `tasks.description.scenes.change.Footage`.

    Attributes:
        video: An open file, or the bytes of a video that is read in ranges.
        pool: The decoding processes.
        limits: Limits on the video.
        bytes_read: Bytes fetched of a video that is read in ranges.
        frames_decoded: Frames that decoders have put out.
    """

    video: VideoFile | ByteSource
    pool: DecodePool
    limits: Limits
    bytes_read: int = 0
    frames_decoded: int = 0
    _index: SavedIndex = ()
    _packets: VideoIndex | None = field(default=None, repr=False)

    def packets(self) -> VideoIndex:
        """List the packets.

        Raises:
            SceneMethodError: The container does not list them.
            VideoError: The video cannot be opened.
        """
        if self._packets is None:
            try:
                self._packets, _, bytes_read = self.pool.read_index(self.video, limits=self.limits, lists="frames")
            except FallbackRequired as error:
                raise SceneMethodError(
                    f"The file does not list its packets ({error}); use the scene method ema or content."
                ) from None
            self.bytes_read += bytes_read
        return self._packets

    def thumbnails(self, windows: Windows) -> Thumbnails:
        """Decode every frame in some windows.

        Raises:
            SceneMethodError: Byte ranges do not suffice.
            VideoError: The video cannot be decoded.
        """
        return self._decode(windows, THUMBNAIL_PIXELS, roughly=True)

    def every_frame(self, *, width_px: int, height_px: int) -> Iterator[Thumbnails]:
        """Decode every frame, in pieces of bounded size; one pass, if the video is decoded from its beginning.

        Raises:
            SceneMethodError: The video is not local, and byte ranges do not suffice.
            VideoError: The video cannot be decoded.
        """
        pixels = width_px * height_px
        step = max(1, _PIECE_BYTES // (3 * pixels))
        try:
            times_ms = self.packets().times_ms
        except SceneMethodError:
            if not isinstance(self.video, VideoFile):
                yield self._decode((), pixels)
                return
            index, _, _ = self.pool.read_index(self.video, limits=self.limits, lists="keyframes")
            length_s = index.info.duration_s
            pieces: Iterable[Segment] = _steps(step / _MOST_FPS)
        else:
            times_s = (times_ms - times_ms[0]) / _MS
            length_s = float(times_s[-1])
            middles = ((times_s[step::step] + times_s[step - 1 : -1 : step]) / 2).tolist()
            pieces = map(Segment, [None, *middles], [*middles, None])
        if isinstance(self.video, VideoFile):
            yield from self._in_order(self.video, _every(pixels), pieces, length_s)
            return
        for piece in pieces:
            end_s = length_s + 1 if piece.end_s is None else piece.end_s
            yield self._decode(((piece.start_s or 0.0, end_s),), pixels)

    def _in_order(
        self, video: VideoFile, sampling: Sampling, pieces: Iterable[Segment], length_s: float
    ) -> Iterator[Thumbnails]:
        last_ms = -math.inf
        with closing(self.pool.in_pieces(length_s=length_s)) as decoder:
            for piece in pieces:
                try:
                    got = decoder.extract(video, sampling=sampling, limits=self.limits, segment=piece)
                except SamplingRefusedError:
                    if piece.start_s is None:
                        raise
                    return  # the video has ended
                found = self._counted(got)
                is_new = found.times_ms > last_ms  # what lies on a border is in two, and what precedes a gap, too
                if is_new.any():
                    last_ms = int(found.times_ms[-1])
                    yield Thumbnails(images=found.images[is_new], times_ms=found.times_ms[is_new])
                elif got.duration_s <= (piece.start_s or 0.0):
                    return

    def _decode(self, windows: Windows, pixels: int, *, roughly: bool = False) -> Thumbnails:
        return self._counted(self._extract(_every(pixels), windows, roughly=roughly))

    def _counted(self, got: SampledFrames) -> Thumbnails:
        self.frames_decoded += got.frames_decoded
        self.bytes_read += got.bytes_fetched
        return Thumbnails(images=got.images, times_ms=np.round(got.time_s * _MS).astype(np.int64))

    def _extract(self, sampling: Sampling, windows: Windows, *, roughly: bool) -> SampledFrames:
        if isinstance(self.video, VideoFile):
            return self.pool.extract(
                self.video, sampling=sampling, limits=self.limits, windows=windows, roughly=roughly
            )
        try:
            got, self._index = self.pool.extract_by_ranges(
                self.video,
                sampling=sampling,
                limits=self.limits,
                known=self._index,
                windows=windows,
                roughly=roughly,
            )
        except FallbackRequired as error:
            raise SceneMethodError(f"The video cannot be read in ranges ({error}); download it first.") from None
        return got


def _every(pixels: int) -> Sampling:
    return Sampling(sampler="uniform", num_frames=EVERY, max_pixels=pixels, size_multiple_px=1)


def _steps(length_s: float) -> Iterator[Segment]:
    """Yield segments of a length without end; the end of each is inclusive."""
    for number in itertools.count():
        yield Segment.of(number * length_s, (number + 1) * length_s)


@contextmanager
def open_footage(
    objects: ObjectStore, info: ObjectInfo, *, pool: DecodePool, limits: Limits, allow_roots: tuple[Path, ...] = ()
) -> Iterator[PooledFootage]:
    """Open one version of a video, wherever it is.

    Args:
        objects: The object store, web and local files, by URI.
        info: The video.
        pool: The decoding processes.
        limits: Limits on the video.
        allow_roots: Folders that a local video must lie in; empty allows every folder.

    Raises:
        VideoError: It cannot be read any more, here or in the body.
        TransientError: The store is unavailable.
    """
    with as_video_errors(), isolate_refusal():
        if objects.local_path(info.uri) is None:
            yield PooledFootage(video=RemoteVideo(objects, info), pool=pool, limits=limits)
            return
        with objects.open_local(info.uri, allow_roots) as file:
            file.info.require(fingerprint=info.fingerprint, max_bytes=None)
            video = file.as_video() if isinstance(file, LocalFile) else file
            yield PooledFootage(video=video, pool=pool, limits=limits)


@dataclass(slots=True)
class LazyFootage:
    """A video that is opened when it is first looked into; as `Footage`.

    Attributes:
        opened: Opens the video.
        inner: The video, if it was opened.
    """

    opened: Callable[[], PooledFootage]
    inner: PooledFootage | None = None

    def packets(self) -> VideoIndex:
        """List the packets; raises as `PooledFootage.packets`."""
        return self._open().packets()

    def thumbnails(self, windows: Windows) -> Thumbnails:
        """Decode every frame in some windows."""
        return self._open().thumbnails(windows)

    def every_frame(self, *, width_px: int, height_px: int) -> Iterator[Thumbnails]:
        """Decode every frame, piece by piece."""
        return self._open().every_frame(width_px=width_px, height_px=height_px)

    def _open(self) -> PooledFootage:
        if self.inner is None:
            self.inner = self.opened()
        return self.inner


@dataclass(slots=True)
class ClippedFootage:
    """A segment of a video, with times in milliseconds since the video's first frame; as `Footage`.

    Attributes:
        inner: The whole video.
        segment: The segment.
    """

    inner: Footage
    segment: Segment
    _first_ms: int = 0
    _packets: VideoIndex | None = field(default=None, repr=False)

    def packets(self) -> VideoIndex:
        """List the packets of the segment; raises as `PooledFootage.packets`."""
        if self._packets is None:
            listed = self.inner.packets()
            self._first_ms = int(listed.times_ms[0])
            times_ms = listed.times_ms - self._first_ms
            inside = self._lie_inside(times_ms)
            if not inside.any():
                raise _no_frame()
            self._packets = listed.part(inside, since_s=self._first_ms / _MS)
        return self._packets

    def thumbnails(self, windows: Windows) -> Thumbnails:
        """Decode every frame in some windows, in seconds since the first frame of the segment."""
        since_s = float(self.packets().times_ms[0]) / _MS
        found = self.inner.thumbnails(tuple((start + since_s, end + since_s) for start, end in windows))
        return replace(found, times_ms=found.times_ms - self._first_ms)

    def every_frame(self, *, width_px: int, height_px: int) -> Iterator[Thumbnails]:
        """Decode every frame, piece by piece; those outside the segment are left out.

        Raises:
            SceneMethodError: All are.
        """
        first_ms, is_empty = None, True
        for piece in self.inner.every_frame(width_px=width_px, height_px=height_px):
            if first_ms is None:
                first_ms = int(piece.times_ms[0])
            times_ms = piece.times_ms - first_ms
            inside = self._lie_inside(times_ms)
            if inside.any():
                is_empty = False
                yield Thumbnails(images=piece.images[inside], times_ms=times_ms[inside])
        if is_empty:
            raise _no_frame()

    def _lie_inside(self, times_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        start_s, end_s = self.segment.start_s or 0.0, self.segment.end_s
        inside: npt.NDArray[np.bool_] = times_ms >= round(start_s * _MS)
        return inside if end_s is None else inside & (times_ms <= round(end_s * _MS))


def _no_frame() -> SceneMethodError:
    return SceneMethodError("No frame lies in the segment.")
