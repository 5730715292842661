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


def choose_frames(embeddings: Embeddings, texts: npt.NDArray[np.float32], count: int) -> ChosenFrames:
    """Choose the frames that fit the best of some texts best, spread over time.

    Args:
        embeddings: Of all frames that can be chosen.
        texts: Vectors of the texts, by the same model; shape (K, D).
        count: Frames to choose; all of them are, if there are fewer.
    """
    scores = (embeddings.vectors @ texts.T).max(axis=1)
    chosen = choose_adaptively(scores, count)
    pts_ms = embeddings.pts_ms
    ends_ms = np.concatenate([pts_ms[:1], pts_ms[chosen], pts_ms[-1:]])
    gap_s, best_s = float(np.diff(ends_ms).max()) / _MS, float(pts_ms[scores.argmax()]) / _MS
    return ChosenFrames(
        times_ms=tuple((pts_ms[chosen] + embeddings.first_ms).tolist()),
        note=f"{len(chosen)} of {len(pts_ms)} frames chosen by the question, the best of which is at {best_s:.1f} s; "
        f"at most {gap_s:.1f} s without one",
    )
