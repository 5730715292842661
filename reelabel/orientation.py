"""Rotation and mirroring of stored frames for display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.video.frame import VideoFrame


class Orientation(NamedTuple):
    """One of eight orientations: transposition, then mirroring.

    Attributes:
        is_transposed: Swap rows and columns.
        is_mirrored: Swap left and right.
        is_flipped: Swap top and bottom.
        rotation_deg: Counter-clockwise rotation requested by the container: 0, 90, 180 or 270.
    """

    is_transposed: bool = False
    is_mirrored: bool = False
    is_flipped: bool = False
    rotation_deg: int = 0

    def apply(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Orient an image of shape (H, W, ...); return a view."""
        transposed = image.swapaxes(0, 1) if self.is_transposed else image
        return transposed[:: -1 if self.is_flipped else 1, :: -1 if self.is_mirrored else 1]


def orientation_of(frame: VideoFrame) -> Orientation:
    """Read a frame's display matrix, rounded to the nearest quarter turn.

    The matrix (a b u; c d v; x y w) maps a stored point (p, q) to (a p + c q, b p + d q), with q pointing down
    (ISO/IEC 14496-12, section 6.2.2; FFmpeg's `libavutil/display.h`).
    """
    matrix: Any = frame.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return Orientation()
    a, b, _, c, d = np.frombuffer(matrix, np.int32)[:5].tolist()
    rotation_deg = round(frame.rotation / 90) % 4 * 90
    if abs(b) + abs(c) > abs(a) + abs(d):
        return Orientation(is_transposed=True, is_mirrored=c < 0, is_flipped=b < 0, rotation_deg=rotation_deg)
    return Orientation(is_mirrored=a < 0, is_flipped=d < 0, rotation_deg=rotation_deg)
