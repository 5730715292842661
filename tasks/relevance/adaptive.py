"""Adaptive keyframe sampling: the frames that fit a question best, spread over time where no part of it stands out.

Xi Tang, Jihao Qiu, Lingxi Xie, Yunjie Tian, Jianbin Jiao, Qixiang Ye: Adaptive Keyframe Sampling for Long Video
Understanding, CVPR 2025, arXiv:2502.21271. A video whose best frames stand out from it is shown by these alone;
otherwise it is halved, each half is shown half as many frames, and the same is decided for each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from reelabel.sampling.uniform import pick_evenly

if TYPE_CHECKING:
    import numpy.typing as npt

    _Scores: TypeAlias = npt.NDArray[np.float64]

# By how much the mean of the best frames must exceed that of all for them to be enough, of the range of all scores. The
# authors' code has 0.8: `python -m benchmarks trade --brief 96` compares both.
STANDS_OUT = 0.5
HALVINGS = 5  # at most, as in the authors' code
# Scores that differ by less are equal: vectors are stored in half precision.
_FLAT = 1e-3


def choose_adaptively(scores: npt.NDArray[np.floating], count: int, *, stands_out: float = STANDS_OUT) -> list[int]:
    """Choose at least one of the frames that fit best, spread over time, by their scores in order of time, shape (N,).

    Where the paper leaves it open: of equal scores, the earlier frame is taken; of an odd number of frames, the half
    with the better best frame is shown one more, or if they are equal, the first one. If all frames fit equally well,
    they are chosen evenly.

    Returns:
        Indices of min(count, N) frames, ascending.

    Raises:
        ValueError: A score is not finite, or there is none.
    """
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise ValueError(f"scores of shape {scores.shape} are not N finite numbers")
    lowest, highest = float(scores.min()), float(scores.max())
    if len(scores) <= count:
        return list(range(len(scores)))
    if highest - lowest < _FLAT:
        return pick_evenly(len(scores), count)
    relative = (scores.astype(np.float64) - lowest) / (highest - lowest)
    return sorted(_choose(relative, count, halvings=HALVINGS, stands_out=stands_out).tolist())


def _choose(scores: _Scores, count: int, *, halvings: int, stands_out: float) -> npt.NDArray[np.int64]:
    """Choose `count` of at least as many frames."""
    best = np.argsort(-scores, kind="stable")[:count]
    if count in {1, len(scores)} or not halvings or scores[best].mean() - scores.mean() >= stands_out:
        return best
    middle = len(scores) // 2
    halves = scores[:middle], scores[middle:]
    less, more = count // 2, count - count // 2
    shares = (less, more) if halves[1].max() > halves[0].max() else (more, less)
    first, second = (
        _choose(half, share, halvings=halvings - 1, stands_out=stands_out)
        for half, share in zip(halves, shares, strict=True)
    )
    return np.concatenate([first, second + middle])
