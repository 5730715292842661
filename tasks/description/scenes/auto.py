"""The method that suits a video: its index where it lists packets, otherwise the embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.description.scenes.change import SceneChanges, SceneMethodError
from tasks.description.scenes.detector import SceneDetector
from tasks.description.scenes.ema import EMA
from tasks.description.scenes.index import INDEX

if TYPE_CHECKING:
    from tasks.description.scenes.change import Evidence


def _detect(evidence: Evidence, threshold: float) -> SceneChanges:
    try:
        return INDEX.detect(evidence, threshold)
    except SceneMethodError as error:
        if not evidence.chunks:
            raise
        found = EMA.detect(evidence, EMA.threshold)
        return SceneChanges(changes=found.changes, method=found.method, note=str(error))


AUTO = SceneDetector(
    name="auto",
    summary="index where the file lists its packets, otherwise ema",
    needs=frozenset({"index", "embeddings"}),
    threshold=INDEX.threshold,
    detect=_detect,
)
