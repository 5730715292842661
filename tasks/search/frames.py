"""Frames that were found: scores, files and times, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundFrames:
    """Frames and how well they fit.

    Attributes:
        scores: Cosine with what was searched for; shape (N,), float32.
        files: Number of the embedding file in the selection; shape (N,), int64.
        pts_ms: Time in milliseconds; shape (N,), int64.
    """

    scores: npt.NDArray[np.float32] = field(repr=False)
    files: npt.NDArray[np.int64] = field(repr=False)
    pts_ms: npt.NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, rows: npt.NDArray[np.int64]) -> FoundFrames:
        """Return some of the frames."""
        return FoundFrames(scores=self.scores[rows], files=self.files[rows], pts_ms=self.pts_ms[rows])

    def best(self, limit: int) -> FoundFrames:
        """Return the best frames, best first; of equal ones, those of the earlier file and time."""
        kept = self
        if len(self) > limit:
            least = -np.partition(-self.scores, limit - 1)[limit - 1]
            kept = self.take(np.flatnonzero(self.scores >= least))  # more than enough, where several have it
        return kept.take(np.lexsort((kept.pts_ms, kept.files, -kept.scores))[:limit])


NO_FRAMES = FoundFrames(scores=np.empty(0, np.float32), files=np.empty(0, np.int64), pts_ms=np.empty(0, np.int64))


def best_frames(parts: Iterable[FoundFrames], limit: int) -> FoundFrames:
    """Return the best frames of several parts, best first, with at most twice `limit` and one part in memory."""
    kept, waiting, count = NO_FRAMES, [], 0
    for part in parts:
        waiting.append(part)
        count += len(part)
        if count >= limit:
            kept, waiting, count = _concatenate([kept, *waiting]).best(limit), [], 0
    return _concatenate([kept, *waiting]).best(limit)


def _concatenate(parts: list[FoundFrames]) -> FoundFrames:
    return FoundFrames(
        scores=np.concatenate([part.scores for part in parts]),
        files=np.concatenate([part.files for part in parts]),
        pts_ms=np.concatenate([part.pts_ms for part in parts]),
    )
