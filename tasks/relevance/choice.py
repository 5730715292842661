"""The choice of a video's frames by what is asked about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tasks.relevance.adaptive import choose_adaptively

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.description.embeddings import Embeddings

_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFrames:
    """Frames that were chosen.

    Attributes:
        times_ms: Their times on the video's own clock, in milliseconds, ascending.
        note: How many of how many, and how far apart they are, as a clause.
    """

    times_ms: tuple[int, ...]
    note: str


def choose_frames(
    embeddings: Embeddings, texts: npt.NDArray[np.float32], count: int, *, apart_ms: float = 0.0
) -> ChosenFrames:
    """Choose the frames that fit the best of some texts best, spread over time.

    Args:
        embeddings: Of all frames that can be chosen.
        texts: Vectors of the texts, by the same model; shape (K, D).
        count: Frames to choose; all of them are, if there are fewer.
        apart_ms: Frames that follow another one by less cannot be chosen: equal parts of a video must have equally
            many, and its last chunk, which is shorter, has as many as the others.
    """
    rows = _thinned(embeddings.pts_ms, apart_ms)
    scores, pts_ms = (embeddings.vectors[rows] @ texts.T).max(axis=1), embeddings.pts_ms[rows]
    chosen = choose_adaptively(scores, count)
    ends_ms = np.concatenate([pts_ms[:1], pts_ms[chosen], pts_ms[-1:]])
    gap_s, best_s = float(np.diff(ends_ms).max()) / _MS, float(pts_ms[scores.argmax()]) / _MS
    return ChosenFrames(
        times_ms=tuple((pts_ms[chosen] + embeddings.first_ms).tolist()),
        note=f"{len(chosen)} of {len(pts_ms)} frames chosen by the question, the best of which is at {best_s:.1f} s; "
        f"at most {gap_s:.1f} s without one",
    )


def _thinned(pts_ms: npt.NDArray[np.int64], apart_ms: float) -> list[int]:
    """Return the frames that follow the one kept before them by at least so many milliseconds."""
    kept = [0]
    for row in range(1, len(pts_ms)):
        if pts_ms[row] - pts_ms[kept[-1]] >= apart_ms:
            kept.append(row)
    return kept
