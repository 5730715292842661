"""Shots merged to scenes by what they show."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tasks.description.scenes.change import ChangeKind, EmbeddedChunk, SceneChange

_LEAST_SIMILARITY = 0.85


class Scene(NamedTuple):
    """A scene.

    Attributes:
        start_ms: Where it starts.
        end_ms: Where the next one starts.
        shots: How many shots it has.
        begins: The kind of change that it begins with; None for the first one.
    """

    start_ms: int
    end_ms: int
    shots: int
    begins: ChangeKind | None = None


def merge_shots(
    changes: Sequence[SceneChange], chunks: Sequence[EmbeddedChunk], *, start_ms: int, end_ms: int
) -> tuple[Scene, ...]:
    """Merge each shot with the scene before it if they show the same.

    A shot is compared with the mean of the scene so far; one without an embedding joins it.

    Args:
        changes: Where shots begin, in order of time.
        chunks: The embeddings of the video's frames.
        start_ms: Start of the video.
        end_ms: Its end.

    Returns:
        Scenes without gaps from the start to the end; none if the video has no length.
    """
    kinds = {change.pts_ms: change.kind for change in changes}
    borders = [start_ms, *(at for at in sorted({c.pts_ms for c in changes}) if start_ms < at < end_ms), end_ms]
    if end_ms <= start_ms:
        return ()
    if len(borders) == 2:  # noqa: PLR2004 - of one shot, as most short videos have
        return (Scene(start_ms, end_ms, 1),)
    vectors, times = join_chunks(chunks)
    scenes: list[Scene] = []
    total: npt.NDArray[np.float64] | None = None
    for start, end in pairwise(borders):
        inside = vectors[(times >= start) & (times < end)]
        shot = inside.sum(axis=0, dtype=np.float64) if len(inside) else None
        if scenes and (shot is None or total is None or _cosine(total, shot) >= _LEAST_SIMILARITY):
            scenes[-1] = scenes[-1]._replace(end_ms=end, shots=scenes[-1].shots + 1)
            total = shot if total is None else total if shot is None else total + shot
        else:
            scenes.append(Scene(start, end, 1, kinds[start] if scenes else None))
            total = shot
    return tuple(scenes)


def join_chunks(chunks: Sequence[EmbeddedChunk]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the vectors of consecutive chunks, and their times."""
    if not chunks:
        return np.zeros((0, 0), np.float32), np.zeros(0, np.int64)
    return np.concatenate([chunk.vectors for chunk in chunks]), np.concatenate([chunk.pts_ms for chunk in chunks])


def _cosine(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float:
    length = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / length if length else 0.0
