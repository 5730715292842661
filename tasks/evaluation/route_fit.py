"""Fit the margin below which jobs are asked again, on known answers.

An estimated margin is fitted on each half of the videos and evaluated on the other, so that its reported accuracy and
cost are those of held-out jobs. The margin to use is the proven one (`tasks.evaluation.route_proof`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from infra.errors import ManifestError
from tasks.evaluation.route_proof import prove_loss, prove_margin

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.evaluation.route_proof import RouteProof, Target
    from tasks.evaluation.route_sample import PairedAnswers

FEWEST_JOBS = 100
FEWEST_VIDEOS = 10
_CURVE_POINTS = 20
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPoint:
    """Cost and accuracy at one margin.

    Attributes:
        below: Margin below which jobs are asked again; None if it differs between the halves.
        asked_again: Fraction of the jobs that is asked again, 0 to 1.
        accuracy: Fraction of the jobs whose final answer is correct.
        frames_decoded: Frames decoded in all passes; those that several jobs share count once per pass.
        seconds: Seconds of decoding, preprocessing and inference, from the result rows.
        loss_at_most: Upper end of the 95% confidence interval of the accuracy lost to the dense sampler; None if the
            margin differs between the halves.
    """

    below: float | None
    asked_again: float
    accuracy: float
    frames_decoded: int
    seconds: float
    loss_at_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFit:
    """A fitted margin, with its cost and accuracy.

    Attributes:
        below: Estimated margin, fitted on all jobs: the smallest that reaches the target in this sample.
        proof: The smallest margin that is proven to reach it.
        proven: Cost and accuracy at that margin; None if none is proven.
        half_below: Margins fitted on each half; if they are far apart, there are too few jobs.
        target: Accuracy to reach.
        held_out: Each half of the jobs evaluated at the margin of the other.
        first: No job asked again.
        dense: Every job asked only with the dense sampler.
        curve: From no job to all jobs asked again.
    """

    jobs: int
    below: float
    proof: RouteProof
    proven: RoutingPoint | None
    half_below: tuple[float, float]
    target: float
    held_out: RoutingPoint
    first: RoutingPoint
    dense: RoutingPoint
    curve: tuple[RoutingPoint, ...] = field(repr=False)


def fit_route(sample: PairedAnswers, target: Target) -> RouteFit:
    """Find the smallest margin that reaches the target in the sample, and the smallest that provably does.

    Raises:
        ManifestError: The sample is too small, or even the dense sampler does not reach the target.
    """
    _require_enough(sample, target)
    halves = sample.halves()
    half_below = fit_margin(halves[0], target), fit_margin(halves[1], target)
    # Each half at the margin of the other.
    crossed = np.where(sample.is_first_half(), half_below[1], half_below[0])
    proof = prove_margin(sample, target)
    return RouteFit(
        jobs=len(sample.margins),
        below=fit_margin(sample, target),
        proof=proof,
        proven=None if proof.below is None else evaluate_margin(sample, np.array(proof.below), below=proof.below),
        half_below=half_below,
        target=target.of(sample),
        held_out=evaluate_margin(sample, crossed, below=None),
        first=evaluate_margin(sample, np.array(0.0), below=0.0),
        dense=RoutingPoint(
            below=None,
            asked_again=0.0,
            accuracy=float(sample.second_right.mean()),
            frames_decoded=sample.count_second_frames(np.ones(len(sample.margins), np.bool_)),
            seconds=float(sample.second_s.sum()),
        ),
        curve=accuracy_curve(sample),
    )


def fit_margin(sample: PairedAnswers, target: Target) -> float:
    """Find the smallest margin such that it and all larger ones reach the target; if none does, ask all again."""
    can_be_asked = np.isfinite(sample.margins)
    # Jobs with equal margins are asked again together.
    margins, places = np.unique(sample.margins[can_be_asked], return_inverse=True)
    gains = sample.second_right[can_be_asked].astype(np.float64) - sample.first_right[can_be_asked]
    right = sample.first_right.sum() + np.cumsum([0.0, *np.bincount(places, gains, minlength=len(margins))])
    is_enough = right >= target.of(sample) * len(sample.margins) - _ROUNDING
    stays_enough = np.logical_and.accumulate(is_enough[::-1])[::-1]
    below = np.array([0.0, *np.nextafter(margins, 2)])
    return float(below[stays_enough.argmax()] if stays_enough.any() else below[-1])


def accuracy_curve(sample: PairedAnswers) -> tuple[RoutingPoint, ...]:
    """Evaluate margins from no job to all jobs asked again, in steps of about equally many jobs."""
    return tuple(evaluate_margin(sample, np.array(each), below=each) for each in _steps(sample))


def evaluate_margin(sample: PairedAnswers, thresholds: npt.NDArray[np.float64], *, below: float | None) -> RoutingPoint:
    """Evaluate one margin, or one for each job, on a sample; `below` is the margin to report."""
    again = sample.margins < thresholds
    return RoutingPoint(
        below=below,
        asked_again=float(again.mean()),
        accuracy=float(np.where(again, sample.second_right, sample.first_right).mean()),
        frames_decoded=sample.count_first_frames() + sample.count_second_frames(again),
        seconds=float(sample.first_s.sum() + sample.second_s[again].sum()),
        loss_at_most=None if below is None else prove_loss(sample, below).at_most,
    )


def _steps(sample: PairedAnswers) -> list[float]:
    margins = sample.margins[np.isfinite(sample.margins)]
    shares = np.linspace(0, 1, _CURVE_POINTS + 1)[1:]
    steps = np.quantile(margins, shares, method="higher") if margins.size else margins
    return [0.0, *np.unique(np.nextafter(steps, 2)).tolist()]


def _require_enough(sample: PairedAnswers, target: Target) -> None:
    jobs, videos = len(sample.margins), len(np.unique(sample.videos))
    if jobs < FEWEST_JOBS or videos < FEWEST_VIDEOS:
        raise ManifestError(
            f"Only {jobs:,} jobs with a known answer, on {videos:,} videos, were asked both on keyframes and with the "
            f"dense sampler; fitting a margin needs at least {FEWEST_JOBS} jobs on {FEWEST_VIDEOS} videos. Fill in "
            "the column answer for more jobs."
        )
    reached = float(sample.second_right.mean())
    if target.accuracy is not None and reached < target.accuracy:
        raise ManifestError(
            f"The dense sampler itself reaches an accuracy of only {reached:.3f}, below the target of "
            f"{target.accuracy:g}; lower --target-accuracy, or leave it out to aim close to the dense sampler's."
        )
