"""PySceneDetect's adaptive detector, fed with our frames; none of its own readers of videos is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from infra.program import APPLICATION
from reelabel.errors import ConfigurationError
from reelabel.origin import install_command
from tasks.description.scenes.change import FrameScores, SceneChange, SceneChanges
from tasks.description.scenes.detector import SceneDetector
from tasks.description.scenes.evidence import score_frames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tasks.description.scenes.change import Evidence, Footage

_WIDTH_PX, _HEIGHT_PX = 256, 144  # to which PySceneDetect scales frames by itself
_THRESHOLD = 3.0
_MIN_SCENE_MS = 200
# As in AdaptiveDetector: frames on each side, the least score of a cut, and the most that a ratio may be, which is also
# that to a mean of nothing.
_WINDOW, _LEAST_SCORE, _MOST_RATIO, _NOTHING = 2, 15.0, 255.0, 1e-5


def _detect(evidence: Evidence, threshold: float) -> SceneChanges:
    scored = score_frames(evidence, "content", _score)
    times = scored.times_ms.tolist()
    return SceneChanges(
        changes=tuple(
            SceneChange(pts_ms=times[at], score=1.0, since_ms=times[at - 1])
            for at in _cuts(scored.scores, times, threshold)
        ),
        method="content",
    )


def _score(footage: Footage) -> FrameScores:
    """Score every frame by how much it differs from the one before, as PySceneDetect does for its detectors."""
    library = _require_library()
    detector = library.AdaptiveDetector()
    times: list[int] = []
    scores: list[float] = []
    for piece in footage.every_frame(width_px=_WIDTH_PX, height_px=_HEIGHT_PX):
        for image, at_ms in zip(piece.images, piece.times_ms.tolist(), strict=True):
            moment = library.FrameTimecode(at_ms / 1000, fps=1000.0)  # a clock of milliseconds
            detector.process_frame(moment, np.ascontiguousarray(image[..., ::-1]))
            scores.append(detector._frame_score)  # noqa: SLF001 - its statistics would also look for edges
            times.append(at_ms)
    return FrameScores(times_ms=np.array(times, np.int64), scores=np.array(scores, np.float64))


def _cuts(scores: npt.NDArray[np.float64], times_ms: Sequence[int], threshold: float) -> Iterator[int]:
    """Yield the positions at which AdaptiveDetector reports a cut, given its scores."""
    last_ms = times_ms[0] if times_ms else 0
    for at in range(_WINDOW, len(scores) - _WINDOW):
        score = float(scores[at])
        if score < _LEAST_SCORE or times_ms[at] - last_ms < _MIN_SCENE_MS:
            continue
        nearby = [*scores[at - _WINDOW : at].tolist(), *scores[at + 1 : at + 1 + _WINDOW].tolist()]
        mean = sum(nearby) / len(nearby)
        ratio = _MOST_RATIO if mean < _NOTHING else min(score / mean, _MOST_RATIO)
        if ratio >= threshold:
            last_ms = times_ms[at]
            yield at


def _require_library() -> Any:  # noqa: ANN401 - a module
    try:
        import scenedetect  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The scene method content needs a package that is not installed ({error.name}): "
            f"`{install_command('scenes', of=APPLICATION)}`."
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
