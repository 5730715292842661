"""Detects scene changes, and merges similar shots to scenes.

- `auto`: cuts from the packet list, verified in the pixels; gradual changes by embeddings.
- `ema`: the distance of embeddings to their moving average, which is reset at a change.
- `published`: the moving average of the published pipeline, which reports a change several times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from reelabel.errors import ConfigurationError
from tasks.description.embeddings import normalize
from tasks.description.scenes import cuts as cut_finder
from tasks.description.scenes.change import Average, ChangeKind, SceneChange, SceneChanges

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tasks.description.chunks import EmbeddedChunk
    from tasks.description.embeddings import Cuts

ALPHA = 0.9
EMA_THRESHOLD = 0.15
_LEAST_SIMILARITY = 0.85
_MS = 1000
# The methods, with their thresholds: of 255 for cuts in pixels, 1 minus a cosine for embeddings.
THRESHOLDS = {"auto": cut_finder.THRESHOLD, "ema": EMA_THRESHOLD, "published": EMA_THRESHOLD}

_NEARBY = 6  # steps from one frame to the next, on each side of a gradual change
_LEAST_NEARBY = 2
_LEAST_RATIO = 6.0  # ratio of a step to the median of those
_LEAST_STEP, _LEAST_CHANGE = 0.02, 0.1  # 1 minus a cosine
_LONGEST_PAUSE_MS = 700  # within a transition, such as the black of a fade


def threshold_of(method: str) -> float:
    """Return the default threshold of a method.

    Raises:
        ConfigurationError: The method is unknown.
    """
    if method not in THRESHOLDS:
        raise ConfigurationError(f"Unknown scene method {method}; choose one of {', '.join(THRESHOLDS)}.")
    return THRESHOLDS[method]


def detect_scenes(
    method: str,
    chunks: Sequence[EmbeddedChunk],
    *,
    threshold: float | None = None,
    cuts: Cuts | None = None,
    average: Average | None = None,
) -> SceneChanges:
    """Detect the scene changes of one video, given the embeddings of its frames, chunk by chunk, in order of time.

    Without a `threshold`, that of the method is used; without `cuts`, `auto` uses only the embeddings. `average` is the
    state after the previous part, from which `ema` and `published` continue; None at the beginning.

    Raises:
        ConfigurationError: The method is unknown.
    """
    default = threshold_of(method)
    least = default if threshold is None else threshold
    if method == "published":
        changes, average = detect_published(chunks, least, average)
        return SceneChanges(changes=tuple(changes), method=method, average=average)
    note = cuts.note if cuts and method == "auto" else ""
    if method == "ema" or cuts is None or cuts.candidates is None:
        least = least if method == "ema" else EMA_THRESHOLD
        changes, average = detect_ema(chunks, least, average)
        return SceneChanges(changes=tuple(changes), method="ema", note=note, average=average)
    exact = cut_finder.cuts_above(cuts, least)
    changes = sorted([*exact, *find_gradual(exact, chunks)], key=lambda change: change.pts_ms)
    return SceneChanges(changes=tuple(changes), method="index and ema", note=note)


def find_gradual(cuts: Sequence[SceneChange], chunks: Sequence[EmbeddedChunk]) -> list[SceneChange]:
    """Find dissolves and fades between cuts: runs of large steps of the embeddings from one frame to the next.

    A step is large if it exceeds six times the median of those nearby in its shot, as PySceneDetect's AdaptiveDetector
    compares pixels: with constant motion, none is. Large steps close to each other are one run, such as both ends of a
    fade through black. A run is a change if the frames before and after it differ, or if several within it differ from
    those before: a flash differs in one.
    """
    vectors, times = join_chunks(chunks)
    borders = np.searchsorted(times, [cut.pts_ms for cut in cuts])
    found = []
    for first, last in pairwise([0, *borders.tolist(), len(times)]):
        shot, at = vectors[first:last], times[first:last]
        for start, end in _runs(_large_steps(shot), at):
            apart = 1 - shot[start : end + 1] @ shot[start]
            if apart[-1] >= _LEAST_CHANGE or np.count_nonzero(apart >= _LEAST_CHANGE) > 1:
                found.append(
                    SceneChange(pts_ms=int(at[end]), score=float(apart.max()), since_ms=int(at[start]), kind="gradual")
                )
    return found


def _large_steps(vectors: npt.NDArray[np.float32]) -> list[int]:
    """Return the frames of a shot at which a large step ends; none if the shot is too short to compare."""
    steps = (1 - np.einsum("ij,ij->i", vectors[1:], vectors[:-1])).tolist()
    large = []
    for step in (number for number, each in enumerate(steps) if each >= _LEAST_STEP):
        nearby = [*steps[max(0, step - _NEARBY) : max(0, step - 1)], *steps[step + 2 : step + _NEARBY + 1]]
        if len(nearby) >= _LEAST_NEARBY and steps[step] >= _LEAST_RATIO * median(nearby):
            large.append(step + 1)
    return large


def _runs(large: Sequence[int], times_ms: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the frame before and the last frame of each run of large steps."""
    runs: list[tuple[int, int]] = []
    for at in large:
        if runs and times_ms[at - 1] - times_ms[runs[-1][1]] <= _LONGEST_PAUSE_MS:
            runs[-1] = runs[-1][0], at
        else:
            runs.append((at - 1, at))
    return runs


def detect_ema(
    chunks: Sequence[EmbeddedChunk], threshold: float = EMA_THRESHOLD, average: Average | None = None
) -> tuple[list[SceneChange], Average | None]:
    """Find the changes of a video by the distance of its embeddings to their moving average; also return its new state.

    A frame whose score, 1 minus the cosine to the average, reaches the threshold is a change, and the average is reset
    to it. A frame right after a change that differs as much is the end of the same transition, such as a dissolve.
    `average` is the state after the previous part; None for the first one.
    """
    changes: list[SceneChange] = []
    vectors, times_ms = join_chunks(chunks)
    for vector, pts_ms in zip(vectors, times_ms.tolist(), strict=True):
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


def detect_published(
    chunks: Sequence[EmbeddedChunk], threshold: float = EMA_THRESHOLD, average: Average | None = None
) -> tuple[list[SceneChange], Average | None]:
    """Detect the changes of a video exactly as the published pipeline does; also return the state for the next part.

    The average is not reset, so one cut is reported for several consecutive frames. The time of frame i of T of a
    chunk is taken to be start + i / max(1, T - 1) x duration.
    """
    changes: list[SceneChange] = []
    mean = average.vector if average else None
    for chunk in chunks:
        gap_ms = chunk.duration_ms / max(1, len(chunk.vectors) - 1)
        for number, vector in enumerate(chunk.vectors):
            mean = vector if mean is None else mean
            score = max(0.0, 1.0 - float(vector @ mean))
            if score >= threshold:
                at_ms = chunk.start_ms + number * gap_ms
                changes.append(SceneChange(pts_ms=round(at_ms), score=score, since_ms=round(at_ms - gap_ms)))
            mean = normalize(ALPHA * mean + (1 - ALPHA) * vector)
    return changes, None if mean is None else Average(mean, 0)


@dataclass(frozen=True, slots=True)
class Scene:
    """A scene, as in the rows and in the service's answers. The next one starts where it ends."""

    start_s: Annotated[float, Field(description="Start, in seconds since the video's first frame.")]
    end_s: Annotated[float, Field(description="End, in seconds since the video's first frame.")]
    shots: Annotated[int, Field(description="Number of consecutive shots that show the same thing.")]
    begins: Annotated[
        ChangeKind | None,
        Field(
            description="Change at its start: a cut, exact to the frame; gradual or sampled, accurate to half a second."
        ),
    ] = None


def merge_shots(
    changes: Sequence[SceneChange], chunks: Sequence[EmbeddedChunk], *, start_ms: int, end_ms: int
) -> tuple[Scene, ...]:
    """Merge each shot with the previous scene if they show the same thing; `changes` are where shots begin, in order.

    A shot is compared with the mean of the scene so far; a shot without an embedding joins it. The scenes have no gaps
    from the start to the end of the video; there is none if it has no length.
    """
    kinds = {change.pts_ms: change.kind for change in changes}
    borders = [start_ms, *(at for at in sorted({c.pts_ms for c in changes}) if start_ms < at < end_ms), end_ms]
    if end_ms <= start_ms:
        return ()
    vectors, times = join_chunks(chunks)
    scenes: list[Scene] = []
    total: npt.NDArray[np.float64] | None = None
    for start, end in pairwise(borders):
        inside = vectors[(times >= start) & (times < end)]
        shot = inside.sum(axis=0, dtype=np.float64) if len(inside) else None
        if scenes and (shot is None or total is None or _cosine(total, shot) >= _LEAST_SIMILARITY):
            scenes[-1] = replace(scenes[-1], end_s=end / _MS, shots=scenes[-1].shots + 1)
            total = shot if total is None else total if shot is None else total + shot
        else:
            scenes.append(Scene(start / _MS, end / _MS, 1, kinds[start] if scenes else None))
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
