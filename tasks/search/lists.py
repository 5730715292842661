"""Lists: vectors grouped by the nearest of some centroids, so that a search looks at the likely groups alone.

An inverted file (IVF), as Sivic and Zisserman, "Video Google", ICCV 2003, and Jegou et al., "Product Quantization for
Nearest Neighbor Search", TPAMI 2011. The centroids are those of spherical k-means.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from tasks.description.embeddings import normalize

if TYPE_CHECKING:
    import numpy.typing as npt

_ROUNDS = 8
_BLOCK_ROWS = 4096
SAMPLES_PER_LIST = 40


def count_lists(rows: int) -> int:
    """Return how many lists suit a number of vectors: the largest power of two that is at most its square root."""
    return 1 << max(0, isqrt(max(1, rows)).bit_length() - 1)


def train_lists(sample: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.float32]:
    """Find centroids of a sample (N, D), N >= count; the same sample gives the same ones.

    Returns:
        Vectors of length 1; shape (count, D), float32.
    """
    rng = np.random.default_rng(0)
    centroids = normalize(sample[rng.choice(len(sample), count, replace=False)])
    for _ in range(_ROUNDS):
        lists = assign_lists(sample, centroids)
        order = np.argsort(lists, kind="stable")
        found, starts = np.unique(lists[order], return_index=True)
        sums = np.add.reduceat(sample[order], starts, axis=0)
        centroids[found] = normalize(sums)
        empty = np.setdiff1d(np.arange(count), found)
        centroids[empty] = normalize(sample[rng.choice(len(sample), len(empty))])
    return centroids


def assign_lists(vectors: npt.NDArray[np.float32], centroids: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """Return the nearest centroid of each vector (N, D); shape (N,)."""
    lists = np.zeros(len(vectors), np.int32)
    if len(centroids) > 1:
        for start in range(0, len(vectors), _BLOCK_ROWS):
            part = slice(start, start + _BLOCK_ROWS)
            lists[part] = np.argmax(vectors[part] @ centroids.T, axis=1)
    return lists
