"""Generates synthetic embeddings of frames of videos about topics, and of queries; deterministic for a seed.

As those of image-text models, they share a direction, vary mostly in some hundred others, and change little within a
video. Texts share another direction, so that their cosines with frames are low.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from reelabel.digest import json_digest
from tasks.description.embeddings import Embeddings, normalize
from tasks.domain import ModelIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

FRAMES_PER_FILE = 1000
_RANK = 128
_TOPICS = 5000
MODEL = ModelIdentity(name="made")
_STEP_MS = 625  # 16 frames in 10 s


@dataclass(frozen=True, kw_only=True)
class MadeVectors:
    """Embedding files of made vectors, in place of a `VectorCache`: each is made when it is read.

    Attributes:
        dimensions: Size of a vector.
        seed: Determines everything.
    """

    dimensions: int
    seed: int = 0

    @cached_property
    def _world(self) -> tuple[npt.NDArray[np.float32], ...]:
        rng = np.random.default_rng(self.seed)
        spectrum = (1 / np.sqrt(1 + np.arange(_RANK) / 16)).astype(np.float32)
        axes = np.linalg.qr(rng.normal(size=(self.dimensions, _RANK + 2)))[0].T.astype(np.float32)
        topics = normalize(rng.normal(size=(_TOPICS, _RANK)) * spectrum)
        return axes[2:], axes[0], axes[1], spectrum, topics

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {}

    def keys(self, first: int, count: int) -> list[str]:
        """Return the keys of some files, which can be read from then on."""
        made = {}
        for number in range(first, first + count):
            digest = json_digest({"file": number})
            made[f"v1/{digest[:2]}/{digest}.arrow"] = number
        self._numbers.update(made)
        return list(made)

    def read_stored(self, key: str) -> tuple[Embeddings, ModelIdentity]:
        vectors = self.file(self._numbers[key])
        pts_ms = np.arange(len(vectors), dtype=np.int64) * _STEP_MS
        return Embeddings(vectors=vectors, pts_ms=pts_ms), MODEL

    def file(self, number: int, *, frames: int = FRAMES_PER_FILE) -> npt.NDArray[np.float32]:
        """Return the vectors of a file; shape (frames, D)."""
        axes, shared, _, spectrum, topics = self._world
        rng = np.random.default_rng((self.seed, number))
        video = 0.7 * normalize(rng.standard_normal(_RANK, np.float32) * spectrum)
        # A video is about three topics, one after another.
        about = topics[np.sort(rng.integers(0, _TOPICS, 3))].repeat(-(-frames // 3), axis=0)[:frames]
        noise = normalize(rng.standard_normal((frames, _RANK), np.float32) * spectrum)
        return normalize((about + video + 0.5 * noise) @ axes + shared)

    def queries(self, count: int, *, kind: str) -> npt.NDArray[np.float32]:
        """Return what is searched for: `frames` of other videos, or `texts` about topics; shape (count, D)."""
        axes, _, texts, spectrum, topics = self._world
        rng = np.random.default_rng((self.seed, count, len(kind)))
        if kind == "frames":
            return np.concatenate([self.file(10**9 + number, frames=1) for number in range(count)])
        noise = normalize(rng.standard_normal((count, _RANK), np.float32) * spectrum)
        return normalize((topics[rng.integers(0, _TOPICS, count)] + 0.7 * noise) @ axes + texts)


def exact_neighbours(
    files: Iterator[npt.NDArray[np.float32]], queries: npt.NDArray[np.float32], *, top: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the frames that fit best, by comparing all of them.

    Args:
        files: Vectors; shape (N, D) each.
        queries: Shape (Q, D).
        top: How many.

    Returns:
        Their numbers over all files, shape (Q, top), best first; and their cosines.
    """
    best = np.empty((len(queries), 0), np.float32)
    numbers = np.empty((len(queries), 0), np.int64)
    first = 0
    for vectors in files:
        scores = queries @ vectors.T
        near = np.argpartition(-scores, min(top, scores.shape[1]) - 1, axis=1)[:, :top]
        best = np.concatenate([best, np.take_along_axis(scores, near, axis=1)], axis=1)
        numbers = np.concatenate([numbers, near + first], axis=1)
        order = np.argsort(-best, axis=1, kind="stable")[:, :top]
        best, numbers = np.take_along_axis(best, order, axis=1), np.take_along_axis(numbers, order, axis=1)
        first += len(vectors)
    return numbers, best
