"""The margin below which a first answer is asked again, fitted on known answers.

Fitted on each half of the videos and judged on the other: what is reported of accuracy and work was measured on
jobs that had no part in the choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from infra.errors import ManifestError

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.routing.sample import AskedTwice

FEWEST_JOBS = 100
FEWEST_VIDEOS = 10
_CURVE_POINTS = 20
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How good answers must be.

    Attributes:
        within: Share of the jobs by which they may be worse than lossless ones, 0 to 1.
        accuracy: Share of the jobs that must be right instead; None goes by `within`.
    """

    within: float = 0.01
    accuracy: float | None = None

    def of(self, sample: AskedTwice) -> float:
        """Give the least share of right answers on a sample."""
        return float(sample.second_right.mean()) - self.within if self.accuracy is None else self.accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What asking again costs and gives.

    Attributes:
        below: Margin below which jobs are asked again; None where it differs from half to half.
        asked_again: Share of the jobs, 0 to 1.
        accuracy: Share of the jobs that are right in the end.
        frames_decoded: Frames of all passes, those that several jobs were shown once a pass.
        seconds: Of decoding, preprocessing and inference, as the rows tell.
    """

    below: float | None
    asked_again: float
    accuracy: float
    frames_decoded: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFit:
    """A fitted margin, and what it is worth.

    Attributes:
        below: Fitted on all jobs.
        half_below: Fitted on each half; far apart, they say that the jobs are too few.
        target: Least accuracy that was asked for.
        held_out: Each half of the jobs under the margin of the other.
        first: No job asked again.
        lossless: Every job asked losslessly alone.
        curve: From none to all of the jobs asked again.
    """

    jobs: int
    below: float
    half_below: tuple[float, float]
    target: float
    held_out: Point
    first: Point
    lossless: Point
    curve: tuple[Point, ...] = field(repr=False)


def fit_route(sample: AskedTwice, target: Target) -> RouteFit:
    """Find the least margin from which on the target is reached.

    Raises:
        ManifestError: The sample is too small, or not even lossless answers reach the target.
    """
    _require_enough(sample, target)
    halves = sample.halves()
    half_below = fit_below(halves[0], target), fit_below(halves[1], target)
    # Either half under the other's margin.
    crossed = np.where(sample.is_first_half(), half_below[1], half_below[0])
    below = fit_below(sample, target)
    return RouteFit(
        jobs=len(sample.margins),
        below=below,
        half_below=half_below,
        target=target.of(sample),
        held_out=point(sample, crossed, below=None),
        first=point(sample, np.array(0.0), below=0.0),
        lossless=Point(
            below=None,
            asked_again=0.0,
            accuracy=float(sample.second_right.mean()),
            frames_decoded=sample.count_second_frames(np.ones(len(sample.margins), np.bool_)),
            seconds=float(sample.second_s.sum()),
        ),
        curve=curve_of(sample),
    )


def fit_below(sample: AskedTwice, target: Target) -> float:
    """Find the least margin such that it and every larger one reach the target; asks all where none does."""
    can_be_asked = np.isfinite(sample.margins)
    # Jobs of one margin are asked again together.
    margins, places = np.unique(sample.margins[can_be_asked], return_inverse=True)
    gains = sample.second_right[can_be_asked].astype(np.float64) - sample.first_right[can_be_asked]
    right = sample.first_right.sum() + np.cumsum([0.0, *np.bincount(places, gains, minlength=len(margins))])
    is_enough = right >= target.of(sample) * len(sample.margins) - _ROUNDING
    stays_enough = np.logical_and.accumulate(is_enough[::-1])[::-1]
    below = np.array([0.0, *np.nextafter(margins, 2)])
    return float(below[stays_enough.argmax()] if stays_enough.any() else below[-1])


def curve_of(sample: AskedTwice) -> tuple[Point, ...]:
    """Judge margins from none to all of the jobs asked again, by about as many from one to the next."""
    return tuple(point(sample, np.array(each), below=each) for each in _steps(sample))


def point(sample: AskedTwice, thresholds: npt.NDArray[np.float64], *, below: float | None) -> Point:
    """Judge margins on a sample.

    Args:
        sample: Jobs asked both ways.
        thresholds: One of each job, or one of all; shape (J,) or ().
        below: What to call them.
    """
    again = sample.margins < thresholds
    return Point(
        below=below,
        asked_again=float(again.mean()),
        accuracy=float(np.where(again, sample.second_right, sample.first_right).mean()),
        frames_decoded=sample.count_first_frames() + sample.count_second_frames(again),
        seconds=float(sample.first_s.sum() + sample.second_s[again].sum()),
    )


def _steps(sample: AskedTwice) -> list[float]:
    margins = sample.margins[np.isfinite(sample.margins)]
    shares = np.linspace(0, 1, _CURVE_POINTS + 1)[1:]
    steps = np.quantile(margins, shares, method="higher") if margins.size else margins
    return [0.0, *np.unique(np.nextafter(steps, 2)).tolist()]


def _require_enough(sample: AskedTwice, target: Target) -> None:
    jobs, videos = len(sample.margins), len(np.unique(sample.videos))
    if jobs < FEWEST_JOBS or videos < FEWEST_VIDEOS:
        raise ManifestError(
            f"{jobs:,} jobs with a known answer were asked both ways, on {videos:,} videos; a margin needs "
            f"{FEWEST_JOBS} jobs on {FEWEST_VIDEOS} videos or more: fill in the column answer of more jobs."
        )
    reached = float(sample.second_right.mean())
    if target.accuracy is not None and reached < target.accuracy:
        raise ManifestError(
            f"Of all jobs asked losslessly, {reached:.3f} are right, fewer than the target accuracy of "
            f"{target.accuracy:g}; lower --target-accuracy, or leave it out to come near the lossless one."
        )
