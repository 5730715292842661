"""Cuts in the pixels of successive frames."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tasks.description.scenes.change import PossibleCut, SceneChange

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from tasks.description.scenes.change import Thumbnails

REACH = 3  # frames on each side that a cut must stand out from, and that a flash may last
THRESHOLD = 10.0  # of 255
_LEAST_RATIO = 1.5
_SHIFT = 3  # pixels of a thumbnail
_PIECE = 2048  # frames whose differences are held at once


def differences(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return how much each frame differs from the one before it.

    Args:
        images: RGB pixels; shape (N, H, W, 3), uint8.

    Returns:
        Mean absolute differences, of 255; 0 for the first frame; shape (N,), float32.
    """
    found = np.zeros(len(images), np.float32)
    for start in range(1, len(images), _PIECE):
        piece = images[start - 1 : start + _PIECE].astype(np.int16)
        found[start : start + _PIECE] = np.abs(np.diff(piece, axis=0)).mean((1, 2, 3))
    return found


def find_possible_cuts(
    thumbnails: Thumbnails, *, gap_ms: float, packets_ms: npt.NDArray[np.int64]
) -> list[PossibleCut]:
    """Find the possible cuts among frames, some of which follow each other.

    Such a difference exceeds all others nearby, as those of fast motion do not, and the pictures do not return after it
    to what they were, as they do after a flash. Its strength is what remains when the pictures are shifted against each
    other, as little of a jerk does.

    Args:
        thumbnails: Small frames.
        gap_ms: The time from one frame to the next, beyond which they follow each other only if no packet is between.
        packets_ms: Times of all packets of the video, ascending; shape (M,), int64.
    """
    times = thumbnails.times_ms
    # Of a picture that is held for long, as where nothing moves on a screen, the next packet comes late.
    between = np.searchsorted(packets_ms, times[1:] - 1) - np.searchsorted(packets_ms, times[:-1] + 1, side="right")
    edges = np.flatnonzero((np.diff(times) > gap_ms) & (between > 0)) + 1
    found: list[PossibleCut] = []
    for start, end in zip([0, *edges.tolist()], [*edges.tolist(), len(times)], strict=True):
        found += _cuts_of_run(thumbnails.images[start:end], times[start:end])
    return found


def cuts_of(possible: Iterable[PossibleCut], threshold: float) -> list[SceneChange]:
    """Return the possible cuts whose strength is at least a threshold, of 255."""
    return [
        SceneChange(pts_ms=cut.pts_ms, score=round(cut.difference / 255, 4), since_ms=cut.since_ms)
        for cut in possible
        if cut.strength >= threshold
    ]


def _cuts_of_run(images: npt.NDArray[np.uint8], times_ms: npt.NDArray[np.int64]) -> list[PossibleCut]:
    steps = differences(images)
    return [
        PossibleCut(
            pts_ms=int(times_ms[at]),
            since_ms=int(times_ms[at - 1]),
            difference=float(steps[at]),
            strength=min(float(steps[at]), _shifted(images[at - 1], images[at])),
        )
        for at in np.flatnonzero(steps >= _LEAST_RATIO).tolist()
        if _stands_out(steps, at) and not _is_flash(images, at, float(steps[at]))
    ]


def _stands_out(steps: npt.NDArray[np.float32], at: int) -> bool:
    nearby = np.concatenate([steps[max(1, at - REACH) : at], steps[at + 1 : at + 1 + REACH]])
    return bool(steps[at] >= _LEAST_RATIO * (nearby.max(initial=0.0) + 1))


def _shifted(before: npt.NDArray[np.uint8], after: npt.NDArray[np.uint8]) -> float:
    """Return the least mean difference of two frames that are shifted against each other; infinite if too small."""
    height, width = (side - 2 * _SHIFT for side in before.shape[:2])
    if min(height, width) < 1:
        return math.inf
    middle = before[_SHIFT : _SHIFT + height, _SHIFT : _SHIFT + width].astype(np.int16)
    shifted = np.lib.stride_tricks.sliding_window_view(after.astype(np.int16), middle.shape)
    return float(np.abs(shifted - middle).mean((3, 4, 5)).min())


def _is_flash(images: npt.NDArray[np.uint8], at: int, step: float) -> bool:
    """Return whether the pictures before and after the frames nearby are the same scene."""
    before, after = images[max(0, at - REACH - 1) : at].astype(np.int16), images[at : at + REACH + 1].astype(np.int16)
    returns = np.abs(after[1:] - before[-1]).mean((1, 2, 3))
    came_back = np.abs(before[:-1] - after[0]).mean((1, 2, 3))
    return bool(min(returns.min(initial=np.inf), came_back.min(initial=np.inf)) < step / 2)
