"""Search hits: frames, and moments of neighbouring frames."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt


MOMENT_MS = 5000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hits:
    """Frames with their scores, one row each."""

    scores: npt.NDArray[np.float32] = field(repr=False)  # cosine with the query; shape (N,)
    files: npt.NDArray[np.int64] = field(repr=False)  # number of the embedding file in the selection; shape (N,)
    pts_ms: npt.NDArray[np.int64] = field(repr=False)  # shape (N,)

    def __len__(self) -> int:
        return len(self.scores)

    def select(self, rows: npt.NDArray[np.int64]) -> Hits:
        return Hits(scores=self.scores[rows], files=self.files[rows], pts_ms=self.pts_ms[rows])

    def best(self, limit: int) -> Hits:
        """Return the best frames, best first; of equal ones, those with the earlier file and time."""
        kept = self
        if len(self) > limit:
            least = -np.partition(-self.scores, limit - 1)[limit - 1]
            kept = self.select(np.flatnonzero(self.scores >= least))  # more than enough, if several have it
        return kept.select(np.lexsort((kept.pts_ms, kept.files, -kept.scores))[:limit])


_NO_HITS = Hits(scores=np.empty(0, np.float32), files=np.empty(0, np.int64), pts_ms=np.empty(0, np.int64))


def top_hits(parts: Iterable[Hits], limit: int) -> Hits:
    """Return the best frames of several parts, best first, with at most twice `limit` and one part in memory."""
    kept, waiting, count = _NO_HITS, [], 0
    for part in parts:
        waiting.append(part)
        count += len(part)
        if count >= limit:
            kept, waiting, count = _concatenate([kept, *waiting]).best(limit), [], 0
    return _concatenate([kept, *waiting]).best(limit)


def _concatenate(parts: list[Hits]) -> Hits:
    return Hits(
        scores=np.concatenate([part.scores for part in parts]),
        files=np.concatenate([part.files for part in parts]),
        pts_ms=np.concatenate([part.pts_ms for part in parts]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The best frame within five seconds of a video."""

    file: int  # number of the embedding file in the selection
    time_ms: int
    score: float  # cosine with the query


def merge_moments(frames: Hits, videos: npt.NDArray[np.int64], *, top: int, near_ms: int = MOMENT_MS) -> list[Moment]:
    """Choose up to `top` of the best frames that are not within `near_ms` of a better one of the same video.

    `frames` are the best first. `videos` has the number of the video of each file; several files may be of one video.
    """
    moments: list[Moment] = []
    taken: defaultdict[int, list[int]] = defaultdict(list)
    columns = (frames.scores.tolist(), frames.files.tolist(), frames.pts_ms.tolist())
    for score, file, time_ms in zip(*columns, strict=True):
        times_ms = taken[int(videos[file])]
        if any(abs(time_ms - other_ms) < near_ms for other_ms in times_ms):
            continue
        times_ms.append(time_ms)
        moments.append(Moment(file=file, time_ms=time_ms, score=score))
        if len(moments) == top:
            break
    return moments
