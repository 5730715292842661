"""The decoder of a video in a decoding process, from the side of its pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reelabel.decode.canvas import Decoded
from reelabel.errors import FallbackRequired, InvalidReplyError
from reelabel.index import Int64s, Lists, VideoIndex
from reelabel.pool.messages import Call, Open
from reelabel.pool.process import DecodingProcess, RangeReader, TimeLimits
from reelabel.segment import WHOLE, Segment
from reelabel.sources.video_file import VideoFile

if TYPE_CHECKING:
    from reelabel.decode.decoder import Way
    from reelabel.decode.render import View
    from reelabel.options import Limits
    from reelabel.sources.sparse_file import ByteSource, CachedRange


# Maximum size of a frame in the columns of an index, and frames allowed beyond the limit.
_LISTED_BYTES, _SPARE_FRAMES = 64, 65_536


class RemoteDecoder:
    """A `reelabel.decode.decoder.Decoder` whose methods run in a decoding process.

    All raise as they do there, and NotStartedError, ProcessDiedError, InvalidReplyError or DecoderTimeoutError.
    """

    def __init__(
        self,
        process: DecodingProcess,
        video: VideoFile | ByteSource,
        limits: Limits,
        allowed: TimeLimits,
        *,
        threads: int,
        known: tuple[CachedRange, ...] = (),
    ) -> None:
        """Open the video with the first call; the time limits are for all calls together."""
        self.process, self._video, self._allowed = process, video, allowed
        self.ranges = None if isinstance(video, VideoFile) else RangeReader(video)
        self._opening = Open(
            size_bytes=video.size_bytes,
            suffix=video.suffix if isinstance(video, VideoFile) else "",
            limits=limits,
            threads=threads,
            known=known,
        )
        self._is_open = self._is_listed = False
        self.frames_decoded = 0

    @property
    def known(self) -> tuple[CachedRange, ...]:
        return tuple(sorted([*self._opening.known, *self.ranges.header])) if self.ranges and self._is_listed else ()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.process.close_video()

    def read_header(self, lists: Lists, *, of_any_size: bool = False) -> VideoIndex:
        return self._list("read_header", lists, of_any_size=of_any_size)

    def list_keyframes(self) -> VideoIndex:
        return self._list("list_keyframes")

    def list_frames(self, way: Way, lists: Lists, segment: Segment = WHOLE, *, in_pieces: bool = False) -> VideoIndex:
        return self._list("list_frames", way, lists, segment, in_pieces=in_pieces)

    def list_announced(self) -> VideoIndex:
        return self._list("list_announced")

    def decode(self, indices: Int64s, view: View) -> Decoded:
        self._is_listed = True
        if self.ranges:
            self.ranges.is_in_header = False
        decoded: Decoded = self._call(Decoded, "decode", indices, view)
        width_px, height_px = decoded.native_width_px, decoded.native_height_px
        shape = view.shape(*view.fit(width_px, height_px), decoded.orientation)
        is_small = width_px * height_px <= self._opening.limits.max_frame_pixels
        if decoded.images.shape != (len(indices), *shape) or not is_small:
            self.process.distrust()
            raise InvalidReplyError("frames of another number or size than was asked for")
        self.frames_decoded = decoded.frames_decoded
        return decoded

    def _list(self, method: str, *arguments: Any, **options: Any) -> VideoIndex:  # noqa: ANN401
        is_bounded = not options.get("of_any_size")
        max_bytes = _LISTED_BYTES * (self._opening.limits.max_frames + _SPARE_FRAMES) if is_bounded else None
        index: VideoIndex = self._call(VideoIndex, method, *arguments, max_bytes=max_bytes, **options)
        self._is_listed = index.lists == "keyframes" and index.is_listed
        return index

    def _call(
        self,
        kind: type,
        method: str,
        *arguments: Any,  # noqa: ANN401 - of the method
        max_bytes: int | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401 - of the kind
        if not self._is_open:
            descriptor = self._video.descriptor if isinstance(self._video, VideoFile) else None
            self.process.open(self._opening, descriptor, self._allowed)
            self._is_open = True
        try:
            return self.process.call(Call(method, arguments, options), kind, self.ranges, max_bytes=max_bytes)
        except FallbackRequired as error:
            self.frames_decoded = max(self.frames_decoded, error.frames_decoded)
            raise
