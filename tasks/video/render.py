"""From a decoded frame to the pixels that the model sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from av.video.reformatter import Interpolation

from tasks.video.claims import check_frame_size
from tasks.video.orientation import Orientation, orientation_of
from tasks.video.size import fit_size

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.video.frame import VideoFrame

    from tasks.domain import Sampling
    from tasks.video.limits import Limits

# Exact rounding: the same pixels from every processor's vector instructions.
_SCALING = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.BITEXACT


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """Turns frames into RGB, all of one size.

    Attributes:
        width_px: Width before rotation.
        height_px: Height before rotation.
        rotation_deg: Counter-clockwise rotation that the container asks for: 0, 90, 180 or 270.
        orientation: How stored pictures are turned and mirrored to be shown.
        native: Leave frames unscaled, unrotated and unmirrored.
    """

    width_px: int
    height_px: int
    rotation_deg: int
    orientation: Orientation
    native: bool
    limits: Limits

    @classmethod
    def for_frames_like(cls, frame: VideoFrame, *, sampling: Sampling, limits: Limits, native: bool) -> Renderer:
        """Choose the size for a video by one of its frames."""
        width, height = fit_size(
            frame.width,
            frame.height,
            max_pixels=sampling.max_pixels,
            multiple_px=sampling.size_multiple_px,
        )
        return cls(
            width_px=width,
            height_px=height,
            rotation_deg=round(frame.rotation / 90) % 4 * 90,
            orientation=orientation_of(frame),
            native=native,
            limits=limits,
        )

    def render(self, frame: VideoFrame) -> npt.NDArray[np.uint8]:
        """Convert one frame.

        Returns:
            RGB pixels; shape (H, W, 3), uint8.

        Raises:
            VideoTooLargeError: The frame exceeds `limits.max_frame_pixels`.
        """
        check_frame_size(frame.width, frame.height, self.limits)
        if self.native:
            return _rgb(frame.reformat(format="rgb24", threads=1))
        scaled = frame.reformat(
            width=self.width_px,
            height=self.height_px,
            format="rgb24",
            interpolation=_SCALING,
            threads=1,
        )
        return self.orientation.apply(_rgb(scaled))


def _rgb(frame: VideoFrame) -> npt.NDArray[np.uint8]:
    return np.asarray(frame.to_ndarray(), np.uint8)
