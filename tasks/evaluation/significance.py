"""Confidence intervals and significance tests for accuracies."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from tasks.evaluation.scores import Difference, Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

Z = NormalDist().inv_cdf(0.975)
_BISECTIONS = 50


def proportion(correct: int, jobs: int) -> Estimate:
    """Return the fraction of jobs, at least one, that were answered correctly, with Wilson's score interval."""
    from scipy import stats  # noqa: PLC0415 - takes longer to import than most commands need

    interval = stats.binomtest(correct, jobs).proportion_ci(0.95, method="wilson")
    return Estimate(value=correct / jobs, low=float(interval.low), high=float(interval.high))


def paired_difference(is_right: npt.NDArray[np.bool_], is_right_in_baseline: npt.NDArray[np.bool_]) -> Difference:
    """Compare which of the same jobs, at least one, a candidate and the baseline answer correctly.

    `p_holm` equals `p_value` until it is adjusted.
    """
    from scipy import stats  # noqa: PLC0415 - takes longer to import than most commands need

    gained = int((is_right & ~is_right_in_baseline).sum())
    lost = int((~is_right & is_right_in_baseline).sum())
    ends = paired_low(gained=np.array([gained, lost]), lost=np.array([lost, gained]), jobs=len(is_right))
    # McNemar's exact test: under the null hypothesis, each wins half of the jobs on which they differ.
    p_value = float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return Difference(
        jobs=len(is_right),
        gained=gained,
        lost=lost,
        value=(gained - lost) / len(is_right),
        low=float(ends[0]),
        high=float(-ends[1]),
        p_value=p_value,
        p_holm=p_value,
    )


def paired_low(
    *, gained: npt.NDArray[np.float64], lost: npt.NDArray[np.float64], jobs: float | npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return lower ends of 95% confidence intervals of differences between two proportions of the same jobs.

    The score interval of Tango, "Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design", Statistics in Medicine 17 (1998), which is also valid if hardly any answers differ.
    `gained` and `lost` are the jobs that only the first, and only the second, answers correctly; shapes (N,). They may
    be fractions: effective numbers of jobs. The upper end is the negated lower end with both exchanged.
    """
    low, high = np.full(gained.shape, -1.0), (gained - lost) / jobs
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        # Maximum likelihood estimate of the share of `lost`, given the difference.
        linear = (2 * jobs - gained + lost) * middle - gained - lost
        constant = -lost * middle * (1 - middle)
        share = (np.sqrt(np.maximum(linear**2 - 8 * jobs * constant, 0)) - linear) / (4 * jobs)
        variance = jobs * np.maximum(2 * share + middle * (1 - middle), 0)
        is_outside = gained - lost - jobs * middle > Z * np.sqrt(variance)
        low, high = np.where(is_outside, middle, low), np.where(is_outside, high, middle)
    return np.asarray((low + high) / 2)


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values of several tests, in the given order, to control the family-wise error rate.

    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(np.asarray(p_values, float)[order] * factors))
    return [float(value) for value in adjusted]
