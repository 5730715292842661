"""A video for scene detectors, read and decoded by the decoding processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from reelabel.fast_path import FastPathUnavailableError
from reelabel.sampling.options import Sampling
from reelabel.sampling.spec import EVERY
from reelabel.sources.video_file import VideoFile
from tasks.description.scenes.change import SceneMethodError, Thumbnails

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.limits import Limits
    from reelabel.packet_list import PacketList
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.sampled_frames import SampledFrames
    from reelabel.segment import Windows
    from reelabel.sources.sparse_file import ByteSource
    from reelabel.strategies.keyframe_table import SavedIndex

THUMBNAIL_PIXELS = 48 * 27
_PIECE_BYTES = 128 * 1024**2  # of pixels that are held at once


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
    _packets: PacketList | None = field(default=None, repr=False)

    def packets(self) -> PacketList:
        """List the packets.

        Raises:
            SceneMethodError: The container does not list them.
            VideoError: The video cannot be opened.
        """
        if self._packets is None:
            try:
                self._packets, bytes_read = self.pool.read_packets(self.video, limits=self.limits)
            except FastPathUnavailableError as error:
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
        return self._decode(windows, THUMBNAIL_PIXELS)

    def every_frame(self, *, width_px: int, height_px: int) -> Iterator[Thumbnails]:
        """Decode every frame, in pieces of bounded size where the container lists the frames; otherwise at once.

        Raises:
            SceneMethodError: Byte ranges do not suffice.
            VideoError: The video cannot be decoded.
        """
        pixels = width_px * height_px
        try:
            packets = self.packets()
        except SceneMethodError:
            yield self._decode((), pixels)
            return
        seconds = ((packets.times_ms - packets.times_ms[0]) / 1000).tolist()
        step = max(1, _PIECE_BYTES // (3 * pixels))
        for start in range(0, len(seconds), step):
            piece = seconds[start : start + step]
            yield self._decode(((piece[0], piece[-1]),), pixels)

    def _decode(self, windows: Windows, pixels: int) -> Thumbnails:
        sampling = Sampling(sampler="uniform", num_frames=EVERY, max_pixels=pixels, size_multiple_px=1)
        got = self._extract(sampling, windows)
        self.frames_decoded += got.frames_decoded
        self.bytes_read += got.bytes_fetched
        return Thumbnails(images=got.images, times_ms=np.round(got.time_s * 1000).astype(np.int64))

    def _extract(self, sampling: Sampling, windows: Windows) -> SampledFrames:
        if isinstance(self.video, VideoFile):
            return self.pool.extract(self.video, sampling=sampling, limits=self.limits, windows=windows)
        try:
            got, self._index = self.pool.extract_by_ranges(
                self.video, sampling=sampling, limits=self.limits, known=self._index, windows=windows
            )
        except FastPathUnavailableError as error:
            raise SceneMethodError(f"The video cannot be read in ranges ({error}); download it first.") from None
        return got
