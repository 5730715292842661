"""Cuts by the index where it lists packets; gradual changes, which it does not show, by the embeddings."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from tasks.description.scenes.change import SceneChange, SceneChanges, SceneMethodError
from tasks.description.scenes.detector import SceneDetector
from tasks.description.scenes.ema import EMA
from tasks.description.scenes.index import INDEX
from tasks.description.scenes.merge import join_chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tasks.description.scenes.change import EmbeddedChunk, Evidence

_NEARBY = 6  # steps from one frame to the next, on each side of a gradual change
_LEAST_NEARBY = 2
_LEAST_RATIO = 6.0  # of its step to the median of theirs


def _detect(evidence: Evidence, threshold: float) -> SceneChanges:
    gradual = EMA.detect(evidence, EMA.threshold) if evidence.chunks else None
    try:
        cuts = INDEX.detect(evidence, threshold)
    except SceneMethodError as error:
        if gradual is None:
            raise
        return SceneChanges(changes=gradual.changes, method="ema", note=str(error))
    if gradual is None:
        return cuts
    found = those_that_stand_out(gradual.changes, cuts.changes, evidence.chunks)
    return SceneChanges(changes=add_gradual(cuts.changes, found), method="index and ema", note=cuts.note)


def those_that_stand_out(
    gradual: Sequence[SceneChange], cuts: Sequence[SceneChange], chunks: Sequence[EmbeddedChunk]
) -> list[SceneChange]:
    """Leave out the changes that are no larger than others of their shot, as where much moves.

    A step of the embeddings from one frame to the next is compared with the median of those nearby, as PySceneDetect's
    AdaptiveDetector compares pixels; those next to it may belong to the same transition. A shot between cuts that is
    too short to compare has no gradual change.
    """
    vectors, times = join_chunks(chunks)
    steps = 1 - np.einsum("ij,ij->i", vectors[1:], vectors[:-1])
    borders = np.searchsorted(times, [cut.pts_ms for cut in cuts])  # the first frame of each shot
    found = []
    for change in gradual:
        at = int(np.searchsorted(times, change.pts_ms))
        first, last = _shot_of(at, borders, len(times))
        nearby = [
            number
            for number in range(max(first + 1, at - _NEARBY), min(last, at + _NEARBY + 1))
            if abs(number - at) > 1
        ]
        if len(nearby) >= _LEAST_NEARBY and steps[at - 1] >= _LEAST_RATIO * np.median(steps[np.array(nearby) - 1]):
            found.append(change)
    return found


def _shot_of(at: int, borders: npt.NDArray[np.int64], frames: int) -> tuple[int, int]:
    """Return the first frame of the shot that a frame is in, and the first one after it."""
    place = int(np.searchsorted(borders, at, side="right"))
    return (int(borders[place - 1]) if place else 0), (int(borders[place]) if place < len(borders) else frames)


def add_gradual(cuts: Sequence[SceneChange], gradual: Sequence[SceneChange]) -> tuple[SceneChange, ...]:
    """Add the changes between whose two frames, and the same time before them, there is no cut."""
    at_ms = [cut.pts_ms for cut in cuts]
    added = []
    for change in gradual:
        earliest = 2 * change.since_ms - change.pts_ms
        number = bisect_left(at_ms, earliest)
        if number == len(at_ms) or at_ms[number] > change.pts_ms:
            added.append(change)
    return tuple(sorted([*cuts, *added], key=lambda change: change.pts_ms))


AUTO = SceneDetector(
    name="auto",
    summary="cuts by index where the file lists its packets, and gradual changes by ema",
    needs=frozenset({"index", "embeddings"}),
    threshold=INDEX.threshold,
    detect=_detect,
)
