"""Cuts by the index where it lists packets; gradual changes, which it does not show, by the embeddings."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from tasks.description.scenes.change import SceneChange, SceneChanges, SceneMethodError
from tasks.description.scenes.detector import SceneDetector
from tasks.description.scenes.ema import EMA
from tasks.description.scenes.index import INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.description.scenes.change import Evidence


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
    return SceneChanges(changes=add_gradual(cuts.changes, gradual.changes), method="index and ema", note=cuts.note)


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
