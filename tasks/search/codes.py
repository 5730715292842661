"""Vectors as bytes: a quarter of the memory of float32, and cosines that are right to about a thousandth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_LARGEST = 127
# Of vectors of length 1, with room for rounding.
LARGEST_SCALE = 1.001 / _LARGEST
# Rows whose floats fit a core's cache.
_BLOCK_BYTES = 1024**2


def quantize(vectors: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Round vectors (N, D) to bytes, each by its own largest component.

    Returns:
        Codes of shape (N, D), and what to multiply each with; shape (N,), float32.
    """
    scales = (np.abs(vectors).max(axis=1, initial=0) / _LARGEST).astype(np.float32)
    codes = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
    return codes, scales


def dequantize(codes: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the vectors that codes stand for; shape (N, D)."""
    return codes.astype(np.float32) * scales[:, None]


def score_rows(
    codes: npt.NDArray[np.int8],
    scales: npt.NDArray[np.float32],
    rows: npt.NDArray[np.int64],
    query: npt.NDArray[np.float32],
) -> npt.NDArray[np.float32]:
    """Return the cosines of some rows with a vector of length 1.

    Args:
        codes: Shape (N, D).
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
        np.dot(floats[:count], query, out=scores[start : start + count])
    scores *= scales[rows]
    return scores
