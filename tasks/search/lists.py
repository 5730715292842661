"""Lists: vectors grouped by the nearest of some centroids, so that a search looks at the likely groups alone.

An inverted file (IVF), as Sivic and Zisserman, "Video Google", ICCV 2003, and Jegou et al., "Product Quantization for
Nearest Neighbor Search", TPAMI 2011. The centroids are those of spherical k-means. Where there are many, they are
grouped themselves, and a vector is compared with those of the nearest groups alone, which may put a few of a hundred
vectors into the second nearest list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.description.embeddings import normalize

if TYPE_CHECKING:
    import numpy.typing as npt

_ROUNDS = 8
_BLOCK_ROWS = 16_384
# Four times the square root, as FAISS suggests at least: a search then compares fewer vectors for the same recall.
_LISTS_PER_ROOT = 4
_MANY_LISTS = 1024
_NEAREST_GROUPS = 8
SAMPLES_PER_LIST = 40


def count_lists(rows: int) -> int:
    """Return how many lists suit a number of vectors: the largest power of two that is at most 4 of its square roots.

    There are never more lists than vectors.
    """
    return 1 << max(0, min(_LISTS_PER_ROOT * isqrt(max(1, rows)), rows).bit_length() - 1)


def train_lists(sample: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.float32]:
    """Find centroids of a sample (N, D), N >= count; the same sample gives the same ones.

    Returns:
        Vectors of length 1; shape (count, D), float32.
    """
    rng = np.random.default_rng(0)
    centroids = normalize(sample[rng.choice(len(sample), count, replace=False)])
    for _ in range(_ROUNDS):
        lists = Lists(centroids).assign(sample)
        order = np.argsort(lists, kind="stable")
        found, starts = np.unique(lists[order], return_index=True)
        sums = np.add.reduceat(sample[order], starts, axis=0)
        centroids[found] = normalize(sums)
        empty = np.setdiff1d(np.arange(count), found)
        centroids[empty] = normalize(sample[rng.choice(len(sample), len(empty))])
    return centroids


@dataclass(frozen=True)
class Lists:
    """Centroids, and which of them vectors are nearest to.

    Attributes:
        centroids: Vectors of length 1; shape (lists, D), float32.
    """

    centroids: npt.NDArray[np.float32] = field(repr=False)

    def assign(self, vectors: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Return the nearest list of each vector (N, D), whose length does not matter; shape (N,)."""
        lists = np.zeros(len(vectors), np.int32)
        if len(self.centroids) > 1:
            for start in range(0, len(vectors), _BLOCK_ROWS):
                part = slice(start, start + _BLOCK_ROWS)
                lists[part] = self._assign(vectors[part].astype(np.float32, copy=False))
        return lists

    def _assign(self, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        lists: npt.NDArray[np.int32]
        if len(self.centroids) < _MANY_LISTS:
            lists = np.argmax(vectors @ self.centroids.T, axis=1).astype(np.int32)
            return lists
        heads, members = self._groups
        near = np.argpartition(vectors @ -heads.T, _NEAREST_GROUPS, axis=1)[:, :_NEAREST_GROUPS]
        lists, best = np.zeros(len(vectors), np.int32), np.full(len(vectors), -np.inf, np.float32)
        for group, of_group in enumerate(members):
            rows = np.flatnonzero((near == group).any(axis=1))
            if len(rows) and len(of_group):
                scores = vectors[rows] @ self.centroids[of_group].T
                found = np.argmax(scores, axis=1)
                scores = np.take_along_axis(scores, found[:, None], axis=1)[:, 0]
                is_nearer = scores > best[rows]
                best[rows[is_nearer]] = scores[is_nearer]
                lists[rows[is_nearer]] = of_group[found[is_nearer]]
        return lists

    @cached_property
    def _groups(self) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.int64]]]:
        """Return the centroids of groups of lists, and the lists of each group."""
        heads = train_lists(self.centroids, isqrt(len(self.centroids)))
        group_of = Lists(heads).assign(self.centroids)
        return heads, [np.flatnonzero(group_of == group) for group in range(len(heads))]
