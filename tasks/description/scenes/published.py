"""The moving average of the published pipeline, exactly: it repeats a change, and places frames evenly in a chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.description.embeddings import normalize
from tasks.description.scenes.change import Average, SceneChange
from tasks.description.scenes.ema import ALPHA, THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from tasks.description.scenes.change import EmbeddedChunk


def detect_published_chunk(
    chunk: EmbeddedChunk, average: npt.NDArray[np.float32] | None, threshold: float = THRESHOLD
) -> tuple[list[SceneChange], npt.NDArray[np.float32] | None]:
    """Find the changes of one chunk as the published method does.

    The average is not reset, so that one cut is reported for several frames in a row. The time of frame i of T is
    taken to be start + i / max(1, T - 1) x duration.

    Returns:
        The changes, and the average for the next chunk; shape (D,), float32.
    """
    changes = []
    gap_ms = chunk.duration_ms / max(1, len(chunk.vectors) - 1)
    for number, vector in enumerate(chunk.vectors):
        if average is None:
            average = vector
        score = max(0.0, 1.0 - float(vector @ average))
        if score >= threshold:
            at_ms = chunk.start_ms + number * gap_ms
            changes.append(SceneChange(pts_ms=round(at_ms), score=score, since_ms=round(at_ms - gap_ms)))
        average = normalize(ALPHA * average + (1 - ALPHA) * vector)
    return changes, average


def detect_published(
    chunks: Sequence[EmbeddedChunk], threshold: float = THRESHOLD, average: Average | None = None
) -> tuple[list[SceneChange], Average | None]:
    """Find the changes of a video by its chunks, in order of time; go on from an average, and return the last one."""
    changes: list[SceneChange] = []
    vector = average.vector if average else None
    for chunk in chunks:
        found, vector = detect_published_chunk(chunk, vector, threshold)
        changes += found
    return changes, None if vector is None else Average(vector, 0)
