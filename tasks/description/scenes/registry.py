"""All methods that find changes of scene."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.description.scenes.auto import AUTO
from tasks.description.scenes.content import CONTENT
from tasks.description.scenes.detector import find, register, registered
from tasks.description.scenes.ema import EMA
from tasks.description.scenes.index import INDEX
from tasks.description.scenes.published import PUBLISHED
from tasks.description.scenes.transnetv2 import TRANSNETV2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.description.scenes.change import Evidence, SceneChanges
    from tasks.description.scenes.detector import SceneDetector

for _detector in (AUTO, INDEX, EMA, CONTENT, TRANSNETV2, PUBLISHED):
    register(_detector)


def scene_detectors() -> Mapping[str, SceneDetector]:
    """Return the methods by name, in the order of help and forms."""
    return registered()


def detect_scenes(method: str, evidence: Evidence, *, threshold: float | None = None) -> SceneChanges:
    """Find the changes of scene of one video.

    Args:
        method: Name of the method.
        evidence: What is known of the video.
        threshold: Its threshold; None takes the method's own.

    Raises:
        ConfigurationError: There is no such method, or it is not installed.
        SceneMethodError: The video offers too little for it.
        VideoError: The video cannot be decoded.
    """
    detector = find(method)
    return detector.detect(evidence, detector.threshold if threshold is None else threshold)
