"""Standard errors over jobs that are not independent because they share videos."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from tasks.evaluation.scores import Estimate

if TYPE_CHECKING:
    import numpy.typing as npt


def mean_interval(values: npt.NDArray[np.float64], clusters: npt.NDArray[np.uint64]) -> Estimate:
    """Estimate the mean of one value per job, which may depend on each other within a cluster, of at least two.

    The cluster-robust variance of Liang and Zeger, "Longitudinal data analysis using generalized linear models",
    Biometrika 73 (1986), with the factor G / (G - 1) and Student's t with G - 1 degrees of freedom for G clusters.
    """
    value = float(values.mean())
    error = sqrt(sum_variance(values - value, clusters)) / len(values)
    reach = t_quantile(clusters) * error
    return Estimate(value=value, low=value - reach, high=value + reach)


def sum_variance(deviations: npt.NDArray[np.float64], clusters: npt.NDArray[np.uint64]) -> float:
    """Estimate the variance of a sum of deviations, which have mean zero; shapes (J,)."""
    _, places = np.unique(clusters, return_inverse=True)
    sums = np.bincount(places, deviations)
    return float((sums**2).sum() * len(sums) / max(1, len(sums) - 1))


def t_quantile(clusters: npt.NDArray[np.uint64]) -> float:
    """Return the factor of the standard error for a 95% interval."""
    from scipy import stats  # noqa: PLC0415 - takes longer to import than most commands need

    return float(stats.t.ppf(0.975, max(1, len(np.unique(clusters)) - 1)))


def design_effect(values: npt.NDArray[np.float64], clusters: npt.NDArray[np.uint64]) -> float:
    """Return the factor, at least 1, by which clusters inflate the variance of the mean of one value per job.

    Dividing counts by it makes methods for independent jobs valid: Rao and Scott, "A simple method for the analysis of
    clustered binary data", Biometrics 48 (1992).
    """
    deviations = values - values.mean()
    independent = float((deviations**2).sum()) * len(values) / max(1, len(values) - 1)
    return max(1.0, sum_variance(deviations, clusters) / independent) if independent else 1.0


def design_effects(values: npt.NDArray[np.float64], clusters: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return the design effects of the first value with zeros instead of all others, of the first two, and so on."""
    _, places, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    by_cluster = np.argsort(places, kind="stable")
    ended = np.cumsum(values[by_cluster])
    before = np.empty(len(values))  # sum of the earlier values of the same cluster
    before[by_cluster] = ended - values[by_cluster]
    before -= np.concatenate([[0.0], ended[np.cumsum(sizes) - 1]])[places]
    sums, count, jobs = np.cumsum(values), len(sizes), len(values)
    means = sums / jobs
    squares = np.cumsum(values * (2 * before + values))  # of the sums of clusters
    between = squares - 2 * means * np.cumsum(values * sizes[places]) + means**2 * float((sizes**2).sum())
    independent = (np.cumsum(values**2) - means * sums) * jobs / max(1, jobs - 1)
    clustered = between * count / max(1, count - 1)
    return np.maximum(1.0, np.divide(clustered, independent, out=np.ones(jobs), where=independent > 0))
