"""What detectors take of the evidence on a video."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tasks.description.scenes.change import SceneMethodError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.description.scenes.change import Evidence, Footage, FrameScores


def require_footage(evidence: Evidence, method: str) -> Footage:
    """Return the video.

    Raises:
        SceneMethodError: Only its embeddings are at hand.
    """
    if evidence.footage is None:
        raise SceneMethodError(f"The scene method {method} needs the video, but only its embeddings are available.")
    return evidence.footage


def score_frames(evidence: Evidence, method: str, score: Callable[[Footage], FrameScores]) -> FrameScores:
    """Return the scores that a method gives to every frame, unless an earlier run has kept them.

    Args:
        evidence: What is known of the video.
        method: Name of the method.
        score: Scores the frames.

    Raises:
        SceneMethodError: Only the video's embeddings are at hand.
        VideoError: The video cannot be decoded.
    """
    compute = partial(score, require_footage(evidence, method))
    return evidence.keep_scores(method, compute) if evidence.keep_scores else compute()
