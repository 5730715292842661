"""From a decoded frame to the pixels that the model sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from av.video.reformatter import Interpolation, VideoReformatter

from infra.errors import VideoUnreadableError
from tasks.video.claims import check_frame_size
from tasks.video.orientation import Orientation, orientation_of
from tasks.video.size import fit_size

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.video.frame import VideoFrame
    from av.video.plane import VideoPlane

    from tasks.domain import Sampling
    from tasks.video.limits import Limits

# Exact rounding: the same pixels from every processor's vector instructions.
_SCALING = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.BITEXACT
# FFmpeg scales to planes faster than to packed RGB, and with each pixel's own chroma.
_PLANAR = "gbrp"
_PLANES_TO_CHANNELS = (1, 2, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """Turns the frames of one video into RGB, all of one size.

    Attributes:
        width_px: Width before rotation.
        height_px: Height before rotation.
        orientation: How stored pictures are turned and mirrored to be shown.
        native: Leave frames unscaled, unrotated and unmirrored.
        limits: What a frame may cost.
    """

    width_px: int
    height_px: int
    orientation: Orientation
    native: bool
    limits: Limits
    _reformatter: VideoReformatter = field(default_factory=VideoReformatter)

    @classmethod
    def for_frames_like(
        cls,
        frame: VideoFrame,
        *,
        sampling: Sampling,
        limits: Limits,
        native: bool,
        orientation: Orientation | None = None,
    ) -> Renderer:
        """Choose the size for a video by one of its frames, and the orientation where none is given."""
        width, height = frame.width, frame.height
        if not native:
            width, height = fit_size(
                width, height, max_pixels=sampling.max_pixels, multiple_px=sampling.size_multiple_px
            )
        return cls(
            width_px=width,
            height_px=height,
            orientation=orientation or orientation_of(frame),
            native=native,
            limits=limits,
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of what `draw` fills."""
        is_turned = self.orientation.is_transposed and not self.native
        sides = (self.width_px, self.height_px) if is_turned else (self.height_px, self.width_px)
        return (*sides, 3)

    def draw(self, frame: VideoFrame, image: npt.NDArray[np.uint8]) -> None:
        """Convert one frame to RGB, into an array of `shape`.

        Raises:
            VideoTooLargeError: The frame exceeds `limits.max_frame_pixels`.
            VideoUnreadableError: It must keep its size, and that is another than the first frame's.
        """
        check_frame_size(frame.width, frame.height, self.limits)
        if self.native:
            self._require_size(frame)
            image[:] = self._reformatter.reformat(frame, format="rgb24", threads=1).to_ndarray()
            return
        scaled = self._reformatter.reformat(
            frame, width=self.width_px, height=self.height_px, format=_PLANAR, interpolation=_SCALING, threads=1
        )
        for plane, channel in zip(scaled.planes, _PLANES_TO_CHANNELS, strict=True):
            image[..., channel] = self.orientation.apply(self._pixels(plane))

    def _pixels(self, plane: VideoPlane) -> npt.NDArray[np.uint8]:
        lines: npt.NDArray[np.uint8] = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
        return lines[: self.height_px, : self.width_px]

    def _require_size(self, frame: VideoFrame) -> None:
        if (frame.width, frame.height) != (self.width_px, self.height_px):
            raise VideoUnreadableError(
                f"The video's frames change their size ({self.width_px}x{self.height_px}, then "
                f"{frame.width}x{frame.height}); do not ask for native.",
            )
