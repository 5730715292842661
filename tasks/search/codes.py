"""Vectors as two bytes per component: the first alone finds what is near, both together tell how near.

The first is a quarter of the memory of float32, and gives cosines that are right to about a thousandth; with the
second, which is only looked at for what is near, they are right to about a millionth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_LARGEST = 127
# The first byte is off by at most a half, which the second divides into 127 steps.
_STEP = 0.5 / _LARGEST
# Of vectors of length 1, with room for rounding.
LARGEST_SCALE = 1.001 / _LARGEST
# Rows whose floats fit a core's cache.
_BLOCK_BYTES = 1024**2


def quantize(
    vectors: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Round vectors (N, D) to bytes, each by its own largest component.

    Returns:
        First and second bytes, of shape (N, D), and what to multiply each row with; shape (N,), float32.
    """
    scales = (np.abs(vectors).max(axis=1, initial=0) / _LARGEST).astype(np.float32)
    scaled = vectors / np.where(scales > 0, scales, 1)[:, None]
    codes = np.rint(scaled)
    fine = np.rint((scaled - codes) / _STEP)
    return codes.astype(np.int8), fine.astype(np.int8), scales


def dequantize(
    codes: npt.NDArray[np.int8], fine: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return the vectors that bytes stand for; shape (N, D)."""
    return (codes + np.float32(_STEP) * fine) * scales[:, None]


def score_rows(
    codes: npt.NDArray[np.int8],
    scales: npt.NDArray[np.float32],
    rows: npt.NDArray[np.int64],
    query: npt.NDArray[np.float32],
) -> npt.NDArray[np.float32]:
    """Return the cosines of some rows with a vector of length 1, by the first bytes alone.

    Args:
        codes: First bytes; shape (N, D).
        scales: Shape (N,).
        rows: Which rows, ascending; shape (K,).
        query: Shape (D,).

    Returns:
        Shape (K,).
    """
    size = codes.shape[1]
    step = max(1, _BLOCK_BYTES // (4 * size))
    taken, floats = np.empty((step, size), np.int8), np.empty((step, size), np.float32)
    scores = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        count = len(part)
        np.take(codes, part, axis=0, out=taken[:count], mode="clip")  # without a copy, unlike the mode raise
        np.copyto(floats[:count], taken[:count])
        # As fast as a product of a matrix, for which BLAS would start threads of its own beside those of the search.
        np.vecdot(floats[:count], query, out=scores[start : start + count])
    scores *= scales[rows]
    return scores
