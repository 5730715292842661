"""The published method, repeated exactly, so that the corrected one can be compared with it.

Source: Anyscale's tutorial of video analysis on Ray Serve. Three of its choices are corrected elsewhere: a tag's score
is the mean over only those chunks in whose best ones it is, which favours rare tags; one cut is reported several times,
because the moving average follows it slowly; and a change's time assumes frames at even times, the last at the end.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tasks.description.chunks import Chunk

ALPHA = 0.9
THRESHOLD = 0.15


class SceneChange(NamedTuple):
    """A scene change.

    Attributes:
        at_s: Its time in seconds.
        score: One minus the cosine with the moving average.
    """

    at_s: float
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDescription:
    """What the published method finds.

    Attributes:
        tags: Index and score of the best tags, best first.
        caption: Index and score of the best caption of any chunk; None without chunks or captions.
        changes: Scene changes of all chunks.
        duration_s: End of the last chunk.
    """

    tags: tuple[tuple[int, float], ...]
    caption: tuple[int, float] | None
    changes: tuple[SceneChange, ...]
    duration_s: float


def describe_published(
    vectors: Sequence[npt.NDArray[np.float32]],
    chunks: Sequence[Chunk],
    *,
    tags: npt.NDArray[np.float32],
    captions: npt.NDArray[np.float32],
    top_k: int = 5,
) -> PublishedDescription:
    """Describe a video.

    Args:
        vectors: Of each chunk's frames; each of shape (T, D), T >= 1.
        chunks: Their times.
        tags: Bank of tags; shape (K, D).
        captions: Bank of captions; shape (L, D).
        top_k: Tags per chunk, and per video.
    """
    by_tag: defaultdict[int, list[float]] = defaultdict(list)
    best: tuple[int, float] | None = None
    changes: list[SceneChange] = []
    state: npt.NDArray[np.float32] | None = None
    for frames, chunk in zip(vectors, chunks, strict=True):
        pooled = frames.mean(axis=0)
        pooled = pooled / np.linalg.norm(pooled)
        scores = tags @ pooled
        for index in np.argsort(-scores, kind="stable")[:top_k].tolist():
            by_tag[index].append(float(scores[index]))
        fits = captions @ pooled
        if fits.size and (best is None or fits.max() > best[1]):
            best = int(fits.argmax()), float(fits.max())
        found, state = find_changes(frames, chunk, state)
        changes += found
    means = sorted(((index, float(np.mean(scores))) for index, scores in by_tag.items()), key=lambda tag: -tag[1])
    return PublishedDescription(
        tags=tuple(means[:top_k]),
        caption=best,
        changes=tuple(changes),
        duration_s=chunks[-1].end_s if chunks else 0.0,
    )


def find_changes(
    frames: npt.NDArray[np.float32],
    chunk: Chunk,
    state: npt.NDArray[np.float32] | None,
) -> tuple[list[SceneChange], npt.NDArray[np.float32]]:
    """Find the scene changes of a chunk.

    Args:
        frames: Vectors of its frames; shape (T, D), T >= 1.
        chunk: Its times.
        state: The moving average after the previous chunk; None for the first.

    Returns:
        The changes, and the moving average after the chunk; shape (D,).
    """
    average = frames[0] if state is None else state
    changes = []
    for number, frame in enumerate(frames):
        score = max(0.0, 1 - float(frame @ average))
        if score >= THRESHOLD:
            at_s = chunk.start_s + number / max(1, len(frames) - 1) * chunk.duration_s
            changes.append(SceneChange(at_s, score))
        average = ALPHA * average + (1 - ALPHA) * frame
        average = average / np.linalg.norm(average)
    return changes, average
