"""Changes by the distance of embeddings to their moving average, which starts anew at each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tasks.description.scenes.change import Average, SceneChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tasks.description.scenes.change import EmbeddedChunk

ALPHA = 0.9
THRESHOLD = 0.15


def detect_chunk(
    chunk: EmbeddedChunk, average: Average | None, threshold: float = THRESHOLD
) -> tuple[list[SceneChange], Average | None]:
    """Find the changes of one chunk.

    A frame at which the score, 1 minus the cosine to the average, reaches the threshold is a change, and the average
    starts anew from it. A frame right after a change, as different again, is the end of the same transition, such as of
    a dissolve: the two are one change.

    Args:
        chunk: The embeddings.
        average: The state that the chunk before it has left; None for the first one.
        threshold: The least score of a change.

    Returns:
        The changes, and the state for the next chunk.
    """
    changes: list[SceneChange] = []
    for vector, pts_ms in zip(chunk.vectors, chunk.pts_ms.tolist(), strict=True):
        if average is None:
            average = Average(vector, pts_ms)
            continue
        score = max(0.0, 1.0 - float(vector @ average.vector))
        if score < threshold:
            average = Average(_blend(average.vector, vector), pts_ms)
            continue
        if not average.was_change:
            changes.append(SceneChange(pts_ms=pts_ms, score=score, since_ms=average.last_ms))
        average = Average(vector, pts_ms, was_change=not average.was_change)
    return changes, average


def _blend(average: npt.NDArray[np.float32], vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    blended = ALPHA * average + (1 - ALPHA) * vector
    length = float(np.linalg.norm(blended))
    return vector if length == 0 else (blended / length).astype(np.float32)


def detect_ema(
    chunks: Sequence[EmbeddedChunk], threshold: float = THRESHOLD, average: Average | None = None
) -> tuple[list[SceneChange], Average | None]:
    """Find the changes of a video by its chunks, in order of time; go on from an average, and return the last one."""
    changes: list[SceneChange] = []
    for chunk in chunks:
        found, average = detect_chunk(chunk, average, threshold)
        changes += found
    return changes, average
