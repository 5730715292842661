"""The methods that find changes of scene.

- `auto`: cuts by the list of packets, checked in the pixels; gradual changes, which it does not show, by embeddings.
- `ema`: the distance of embeddings to their moving average, which restarts at a change.
- `published`: the moving average of the published pipeline, which repeats a change.
"""

from __future__ import annotations

from difflib import get_close_matches
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import ConfigurationError
from tasks.description.scenes import cuts as cut_finder
from tasks.description.scenes import ema
from tasks.description.scenes.change import SceneChange, SceneChanges
from tasks.description.scenes.ema import detect_ema
from tasks.description.scenes.merge import join_chunks
from tasks.description.scenes.published import detect_published

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tasks.description.embeddings import Cuts
    from tasks.description.scenes.change import Average, EmbeddedChunk

# The methods, with their thresholds: of 255 for cuts in pixels, 1 minus a cosine for embeddings.
THRESHOLDS = {"auto": cut_finder.THRESHOLD, "ema": ema.THRESHOLD, "published": ema.THRESHOLD}

_NEARBY = 6  # steps from one frame to the next, on each side of a gradual change
_LEAST_NEARBY = 2
_LEAST_RATIO = 6.0  # of its step to the median of theirs
_LEAST_STEP, _LEAST_CHANGE = 0.02, 0.1  # 1 minus a cosine
_LONGEST_PAUSE_MS = 700  # within a transition, as while a fade is black


def threshold_of(method: str) -> float:
    """Return the default threshold of a method.

    Raises:
        ConfigurationError: There is no such method.
    """
    if method in THRESHOLDS:
        return THRESHOLDS[method]
    close = get_close_matches(method, THRESHOLDS, 1)
    hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(THRESHOLDS)}."
    raise ConfigurationError(f"Unknown scene method {method}; {hint}")


def detect_scenes(
    method: str,
    chunks: Sequence[EmbeddedChunk],
    *,
    threshold: float | None = None,
    cuts: Cuts | None = None,
    average: Average | None = None,
) -> SceneChanges:
    """Find the changes of scene of one video.

    Args:
        method: Name of the method.
        chunks: The embeddings of its frames, chunk by chunk, in order of time.
        threshold: Its threshold; None takes the method's own.
        cuts: The cuts of the video, for `auto`; without them, the embeddings alone decide.
        average: Of the part before, from which `ema` and `published` go on; None at the beginning.

    Raises:
        ConfigurationError: There is no such method.
    """
    default = threshold_of(method)
    least = default if threshold is None else threshold
    if method == "published":
        changes, average = detect_published(chunks, least, average)
        return SceneChanges(changes=tuple(changes), method=method, average=average)
    note = cuts.note if cuts and method == "auto" else ""
    if method == "ema" or cuts is None or cuts.candidates is None:
        least = least if method == "ema" else ema.THRESHOLD
        changes, average = detect_ema(chunks, least, average)
        return SceneChanges(changes=tuple(changes), method="ema", note=note, average=average)
    exact = cut_finder.cuts_above(cuts, least)
    changes = sorted([*exact, *find_gradual(exact, chunks)], key=lambda change: change.pts_ms)
    return SceneChanges(changes=tuple(changes), method="index and ema", note=note)


def find_gradual(cuts: Sequence[SceneChange], chunks: Sequence[EmbeddedChunk]) -> list[SceneChange]:
    """Find dissolves and fades between cuts: runs of large steps of the embeddings from one frame to the next.

    A step is large if it exceeds six times the median of those nearby in its shot, as PySceneDetect's AdaptiveDetector
    compares pixels: where all moves, none is. Large steps of little distance are one run, as both ends of a fade
    through black. It is a change if the frames before and after it differ, or several within it from those before: a
    flash differs in one.
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
    """Return the frames of a shot at which a large step ends; none of a shot that is too short to compare."""
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
