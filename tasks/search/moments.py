"""Moments: neighbouring frames of one video are one find."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tasks.search.frames import FoundFrames

MOMENT_MS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The best frame within five seconds of a video.

    Attributes:
        file: Number of the embedding file in the selection.
        time_ms: Its time.
        score: Its cosine with what was searched for.
    """

    file: int
    time_ms: int
    score: float


def merge_moments(
    frames: FoundFrames, videos: npt.NDArray[np.int64], *, top: int, near_ms: int = MOMENT_MS
) -> list[Moment]:
    """Choose the best frames that are not close to a better one of the same video.

    Args:
        frames: Best first.
        videos: Number of the video of each file; several files may be of one video.
        top: Maximum moments to return.
        near_ms: Frames that are nearer than this to a better one belong to its moment.

    Returns:
        At most `top` moments, best first.
    """
    moments: list[Moment] = []
    taken: defaultdict[int, list[int]] = defaultdict(list)
    columns = (frames.scores.tolist(), frames.files.tolist(), frames.pts_ms.tolist())
    for score, file, time_ms in zip(*columns, strict=True):
        times_ms = taken[int(videos[file])]
        if any(abs(time_ms - other_ms) < near_ms for other_ms in times_ms):
            continue
        times_ms.append(time_ms)
        moments.append(Moment(file=file, time_ms=time_ms, score=score))
        if len(moments) == top:
            break
    return moments
