"""Fit a temperature, and measure its effect on held-out jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from infra.errors import ManifestError
from reelabel.text import pluralize
from tasks.evaluation.clusters import mean_interval
from tasks.evaluation.temperature import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    apply_temperature,
    fit_temperature,
    temperature_interval,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.evaluation.temperature import KnownAnswers

BINS = 15


FEWEST_WRONG = 20
# Bisection ends this close to a bound, if the minimum is beyond it.
_BOUND_MARGIN = 1 + 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted temperature and its effect.

    All `*_after` values are cross-fitted: each half of the jobs is scaled by the temperature of the other half.

    Attributes:
        temperature: Fitted on all jobs.
        temperature_low: Lower end of its 95% confidence interval.
        temperature_high: Upper end.
        half_temperatures: Fitted on each half; if they are far apart, there are too few jobs.
        jobs: Jobs with a label and a known answer.
        wrong: Those of them whose label is wrong.
        accuracy: Fraction of correct labels; temperature does not change it.
        confidence_before: Mean probability of the labels.
        confidence_after: The same, calibrated.
        ece_before: Expected calibration error over BINS bins.
        ece_after: The same, calibrated.
        nll_before: Mean negative log-likelihood of the known answers, in nats.
        nll_after: The same, calibrated.
        nll_change: The latter minus the former.
        nll_change_low: Lower end of its 95% confidence interval.
        nll_change_high: Upper end; below 0, calibration is shown to help.
    """

    temperature: float
    temperature_low: float
    temperature_high: float
    half_temperatures: tuple[float, float]
    jobs: int
    wrong: int
    accuracy: float
    confidence_before: float
    confidence_after: float
    ece_before: float
    ece_after: float
    nll_before: float
    nll_after: float
    nll_change: float
    nll_change_low: float
    nll_change_high: float


def calibrate(known: KnownAnswers) -> Calibration:
    """Fit a temperature on jobs on at least two videos, and measure its effect by two-fold cross-fitting.

    Raises:
        ManifestError: Too few labels are wrong to fit a temperature, no temperature within the bounds fits them, or
            the fitted one is shown to harm held-out answers.
    """
    wrong = int((known.logs.argmax(axis=1) != known.truths).sum())
    _require_wrong(wrong, len(known.truths))
    temperature = fit_temperature(known)
    _require_within_bounds(temperature, wrong, len(known.truths))
    low, high = temperature_interval(known, temperature)
    first, second = known.halves()
    temperatures = fit_temperature(first), fit_temperature(second)
    truths = np.concatenate([first.truths, second.truths])
    before = np.concatenate([apply_temperature(half.logs, 1.0) for half in (first, second)])
    after = np.concatenate(
        [apply_temperature(first.logs, temperatures[1]), apply_temperature(second.logs, temperatures[0])]
    )
    is_right = before.argmax(axis=1) == truths
    loss_before, loss_after = _losses(before, truths), _losses(after, truths)
    change = mean_interval(loss_after - loss_before, np.concatenate([first.videos, second.videos]))
    if change.low > 0:
        raise ManifestError(
            f"Calibration makes held-out answers worse: their negative log-likelihood rises by {change.value:.4f} "
            f"({change.low:+.4f} to {change.high:+.4f}). Use the raw probabilities, or know more answers."
        )
    return Calibration(
        temperature=temperature,
        temperature_low=low,
        temperature_high=high,
        half_temperatures=temperatures,
        jobs=len(truths),
        wrong=wrong,
        accuracy=float(is_right.mean()),
        confidence_before=float(before.max(axis=1).mean()),
        confidence_after=float(after.max(axis=1).mean()),
        ece_before=expected_calibration_error(before.max(axis=1), is_right),
        ece_after=expected_calibration_error(after.max(axis=1), is_right),
        nll_before=float(loss_before.mean()),
        nll_after=float(loss_after.mean()),
        nll_change=change.value,
        nll_change_low=change.low,
        nll_change_high=change.high,
    )


def _require_wrong(wrong: int, jobs: int) -> None:
    if wrong < FEWEST_WRONG:
        raise ManifestError(
            f"Cannot fit a temperature: of {pluralize(jobs, 'label')} with a known answer, {wrong:,} "
            f"{'is' if wrong == 1 else 'are'} wrong; at least {FEWEST_WRONG} are needed, since only wrong labels show "
            "how high a confidence may be. Know more answers, or harder ones."
        )


def _require_within_bounds(temperature: float, wrong: int, jobs: int) -> None:
    if not MIN_TEMPERATURE * _BOUND_MARGIN < temperature < MAX_TEMPERATURE / _BOUND_MARGIN:
        raise ManifestError(
            f"Cannot fit a temperature: the best one is beyond {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}, where it "
            f"says nothing about other jobs ({wrong:,} of {pluralize(jobs, 'label')} are wrong). Check that the column "
            "answer is right, or know other answers."
        )


def expected_calibration_error(confidences: npt.NDArray[np.float64], is_right: npt.NDArray[np.bool_]) -> float:
    """Average the gap between the probability of each job's label and its being right over bins of confidence.

    Equation 3 of Guo et al. 2017 (arXiv:1706.04599), after Naeini et al., AAAI 2015: BINS bins of equal width over (0,
    1], each weighted by its share of the jobs.
    """
    bins = np.clip(np.ceil(confidences * BINS).astype(np.int64) - 1, 0, BINS - 1)
    # A bin's weight times its gap is the sum of its jobs' differences, divided by the number of all jobs.
    gaps = np.bincount(bins, weights=confidences - is_right)
    return float(np.abs(gaps).sum() / len(confidences))


def _losses(probabilities: npt.NDArray[np.float64], truths: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the negative log-likelihood of each known answer."""
    at_truth = probabilities[np.arange(len(truths)), truths]
    losses: npt.NDArray[np.float64] = -np.log(np.maximum(at_truth, np.finfo(np.float64).tiny))
    return losses
