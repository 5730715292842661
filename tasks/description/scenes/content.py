"""PySceneDetect's adaptive detector, fed with our frames; none of its own readers of videos is used."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel.errors import ConfigurationError
from tasks.description.scenes.change import SceneChange, SceneChanges
from tasks.description.scenes.detector import SceneDetector
from tasks.description.scenes.index import require_footage

if TYPE_CHECKING:
    from tasks.description.scenes.change import Evidence

_WIDTH_PX, _HEIGHT_PX = 256, 144  # to which PySceneDetect scales frames by itself
_THRESHOLD = 3.0
_MIN_SCENE_S = 0.2


def _detect(evidence: Evidence, threshold: float) -> SceneChanges:
    library = _require_library()
    footage = require_footage(evidence, "content")
    detector = library.AdaptiveDetector(adaptive_threshold=threshold, min_scene_len=_MIN_SCENE_S)
    times: list[int] = []
    found: list[int] = []
    for piece in footage.every_frame(width_px=_WIDTH_PX, height_px=_HEIGHT_PX):
        for image, at_ms in zip(piece.images, piece.times_ms.tolist(), strict=True):
            moment = library.FrameTimecode(at_ms / 1000, fps=1000.0)  # a clock of milliseconds
            cuts = detector.process_frame(moment, np.ascontiguousarray(image[..., ::-1]))
            found += [round(cut.seconds * 1000) for cut in cuts]
            times.append(at_ms)
    return SceneChanges(
        changes=tuple(
            SceneChange(pts_ms=at_ms, score=1.0, since_ms=times[max(0, bisect_left(times, at_ms) - 1)])
            for at_ms in found
        ),
        method="content",
    )


def _require_library() -> Any:  # noqa: ANN401 - a module
    try:
        import scenedetect  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The scene method content needs a package that is not installed ({error.name}): "
            "pip install 'reelabel-app[scenes]'."
        ) from None
    return scenedetect


CONTENT = SceneDetector(
    name="content",
    summary="PySceneDetect's adaptive detector, on every frame",
    needs=frozenset({"frames"}),
    threshold=_THRESHOLD,
    detect=_detect,
    extra="scenes",
    package="scenedetect",
    source="PySceneDetect's AdaptiveDetector",
)
