"""Fit a temperature, and measure its effect on held-out jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tasks.evaluation.temperature import apply_temperature, fit_temperature

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.evaluation.temperature import KnownAnswers

BINS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted temperature and its effect.

    All `*_after` values are cross-fitted: each half of the jobs is scaled by the temperature of the other half.

    Attributes:
        temperature: Fitted on all jobs.
        half_temperatures: Fitted on each half; if they are far apart, there are too few jobs.
        jobs: Jobs with a label and a known answer.
        accuracy: Fraction of correct labels; temperature does not change it.
        confidence_before: Mean probability of the labels.
        confidence_after: The same, calibrated.
        ece_before: Expected calibration error over BINS bins.
        ece_after: The same, calibrated.
        nll_before: Mean negative log-likelihood of the known answers, in nats.
        nll_after: The same, calibrated.
    """

    temperature: float
    half_temperatures: tuple[float, float]
    jobs: int
    accuracy: float
    confidence_before: float
    confidence_after: float
    ece_before: float
    ece_after: float
    nll_before: float
    nll_after: float


def calibrate(known: KnownAnswers) -> Calibration:
    """Fit a temperature on all jobs, and measure its effect by two-fold cross-fitting.

    Args:
        known: Jobs on at least two videos.
    """
    first, second = known.halves()
    temperatures = fit_temperature(first), fit_temperature(second)
    truths = np.concatenate([first.truths, second.truths])
    before = np.concatenate([apply_temperature(half.logs, 1.0) for half in (first, second)])
    after = np.concatenate(
        [apply_temperature(first.logs, temperatures[1]), apply_temperature(second.logs, temperatures[0])]
    )
    is_right = before.argmax(axis=1) == truths
    return Calibration(
        temperature=fit_temperature(known),
        half_temperatures=temperatures,
        jobs=len(truths),
        accuracy=float(is_right.mean()),
        confidence_before=float(before.max(axis=1).mean()),
        confidence_after=float(after.max(axis=1).mean()),
        ece_before=expected_calibration_error(before.max(axis=1), is_right),
        ece_after=expected_calibration_error(after.max(axis=1), is_right),
        nll_before=_negative_log_likelihood(before, truths),
        nll_after=_negative_log_likelihood(after, truths),
    )


def expected_calibration_error(confidences: npt.NDArray[np.float64], is_right: npt.NDArray[np.bool_]) -> float:
    """Average the gap between confidence and accuracy over bins of similar confidence.

    Equation 3 of Guo et al. 2017 (arXiv:1706.04599), after Naeini et al., AAAI 2015: BINS bins of equal
    width over (0, 1], each weighted by its share of the jobs.

    Args:
        confidences: Probability of each job's label; shape (J,).
        is_right: Whether each label is the known answer; shape (J,).
    """
    bins = np.clip(np.ceil(confidences * BINS).astype(np.int64) - 1, 0, BINS - 1)
    # A bin's weight times its gap is the sum of its jobs' differences, divided by the number of all jobs.
    gaps = np.bincount(bins, weights=confidences - is_right)
    return float(np.abs(gaps).sum() / len(confidences))


def _negative_log_likelihood(probabilities: npt.NDArray[np.float64], truths: npt.NDArray[np.int64]) -> float:
    at_truth = probabilities[np.arange(len(truths)), truths]
    return float(-np.log(np.maximum(at_truth, np.finfo(np.float64).tiny)).mean())
