"""Pictures that tell their frame number, so that no two frames of a clip are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_NUMBER_BITS = 8
_NOISE = 24


def draw_frame(number: int, *, width_px: int, height_px: int) -> npt.NDArray[np.uint8]:
    """Draw a frame: its number as black and white blocks over a moving ramp, with noise.

    The noise keeps encoders from skipping blocks, so a frame that was decoded from the wrong
    reference shows it.

    Returns:
        RGB pixels; shape (height_px, width_px, 3), uint8; the same for the same arguments.
    """
    rows, columns = np.mgrid[0:height_px, 0:width_px]
    ramp = np.stack([columns * 2 + number * 5, rows * 3 + number * 3, rows + columns + number * 7], -1) % 200
    noise = np.random.default_rng([number, width_px, height_px]).integers(0, _NOISE, ramp.shape)
    picture = (ramp + noise).astype(np.uint8)
    picture[: height_px // 4] = _blocks(number, width_px)[None, :, None]
    return picture


def _blocks(number: int, width_px: int) -> npt.NDArray[np.uint8]:
    """Give one row of pixels, (width_px,): a block per bit of the number, the highest first."""
    bit = np.arange(width_px) * _NUMBER_BITS // width_px
    return (((number >> (_NUMBER_BITS - 1 - bit)) & 1) * 255).astype(np.uint8)
