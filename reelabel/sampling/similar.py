"""Detection of near-duplicate frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_CELLS = 16  # per side of a thumbnail
_WHITE = 255.0


def drop_similar(images: npt.NDArray[np.uint8], *, threshold: float = 0.95) -> npt.NDArray[np.int64]:
    """Drop each frame whose similarity to the last kept one exceeds `threshold`; return the rows of the others.

    Frames are divided into 16 x 16 cells. The similarity of two frames is that of their least similar cell: 1 minus the
    difference of mean colour, in the channel where it is largest, relative to the full range. So noise is ignored, but
    motion in a corner is not. FFmpeg's `mpdecimate` filter likewise uses the worst block; a mean over the image would
    miss small objects. With 0.95, frames are dropped that differ by less than 13 of 255 levels everywhere.
    """
    kept: list[int] = []
    last = np.empty(0)
    for position, image in enumerate(images):
        cells = mean_colours(image)
        if not kept or similarity(cells, last) <= threshold:
            kept.append(position)
            last = cells
    return np.array(kept, np.int64)


def similarity(cells: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> float:
    """Return the similarity of two frames from 0 to 1, by their `mean_colours`; 0 if they have other cells."""
    return float(1 - np.abs(cells - others).max() / _WHITE) if cells.shape == others.shape else 0.0


def mean_colours(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Average the pixels of each cell of a frame of shape (H, W, 3); shape (up to 16, up to 16, 3)."""
    height_px, width_px = image.shape[:2]
    tops, lefts = _starts(height_px), _starts(width_px)
    # Rows first: that pass reads memory sequentially and leaves little for the second.
    sums = np.add.reduceat(np.add.reduceat(image, tops, axis=0, dtype=np.uint32), lefts, axis=1)
    areas = np.outer(np.diff(tops, append=height_px), np.diff(lefts, append=width_px))
    means: npt.NDArray[np.float64] = sums / areas[..., np.newaxis]
    return means


def _starts(side_px: int) -> npt.NDArray[np.int64]:
    cells = min(_CELLS, side_px)
    return np.arange(cells) * side_px // cells
