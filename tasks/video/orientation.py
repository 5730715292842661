"""How a stored picture is turned and mirrored to be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.video.frame import VideoFrame


class Orientation(NamedTuple):
    """One of the eight ways to lay a picture on a screen: first transposed, then mirrored.

    Attributes:
        is_transposed: Rows become columns.
        is_mirrored: Left and right change places.
        is_flipped: Top and bottom change places.
        rotation_deg: Counter-clockwise rotation that the container asks for: 0, 90, 180 or 270.
    """

    is_transposed: bool = False
    is_mirrored: bool = False
    is_flipped: bool = False
    rotation_deg: int = 0

    def apply(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Turn a picture of shape (H, W, ...); gives a view."""
        turned = image.swapaxes(0, 1) if self.is_transposed else image
        return turned[:: -1 if self.is_flipped else 1, :: -1 if self.is_mirrored else 1]


def orientation_of(frame: VideoFrame) -> Orientation:
    """Read a frame's display matrix, to the nearest quarter turn.

    The matrix (a b u; c d v; x y w) takes a stored point (p, q) to (a p + c q, b p + d q), with q
    downwards (ISO/IEC 14496-12, section 6.2.2; the same in FFmpeg's `libavutil/display.h`).
    """
    matrix: Any = frame.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return Orientation()
    a, b, _, c, d = np.frombuffer(matrix, np.int32)[:5].tolist()
    rotation_deg = round(frame.rotation / 90) % 4 * 90
    if abs(b) + abs(c) > abs(a) + abs(d):
        return Orientation(is_transposed=True, is_mirrored=c < 0, is_flipped=b < 0, rotation_deg=rotation_deg)
    return Orientation(is_mirrored=a < 0, is_flipped=d < 0, rotation_deg=rotation_deg)
