"""Calibration: fits a temperature on known answers, and measures its effect on held-out jobs.

Guo et al., "On Calibration of Modern Neural Networks", ICML 2017 (arXiv:1706.04599).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from infra.errors import ManifestError
from reelabel.digest import hash64
from reelabel.text import pluralize
from tasks.evaluation.clusters import mean_interval, sum_variance, t_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

BINS = 15
FEWEST_WRONG = 20
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
_BISECTIONS = 60
# Bisection ends this close to a bound if the minimum is beyond it.
_BOUND_MARGIN = 1 + 1e-6
# Zero has no logarithm, and one job must not outweigh all the others.
_LEAST_PROBABILITY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownAnswers:
    """Labelled jobs with known answers."""

    # Logarithms of the model's probabilities; shape (J, C), minus infinity past a job's last choice.
    logs: npt.NDArray[np.float64]
    truths: npt.NDArray[np.int64]  # index of the correct choice; shape (J,)
    videos: npt.NDArray[np.uint64]  # hash of each job's video; shape (J,)

    def __post_init__(self) -> None:
        if not (self.logs.ndim == 2 and len(self.logs) == len(self.truths) == len(self.videos)):  # noqa: PLR2004
            raise ValueError(
                f"shapes disagree: logs {self.logs.shape}, truths {self.truths.shape}, videos {self.videos.shape}"
            )

    @classmethod
    def of(cls, rows: Sequence[tuple[Sequence[float], int, str]]) -> Self:
        """Convert each job's probabilities, the index of its correct choice, and its video."""
        return cls(
            logs=log_table([probabilities for probabilities, _, _ in rows]),
            truths=np.array([truth for _, truth, _ in rows], dtype=np.int64),
            # A hash, because a video may be a data: URI of any length.
            videos=np.array([hash64(video) for _, _, video in rows], dtype=np.uint64),
        )

    def halves(self) -> tuple[Self, Self]:
        """Split the jobs in halves by their videos, whatever the order of jobs; no video is in both."""
        is_first = np.isin(self.videos, np.unique(self.videos)[::2])
        return self._take(is_first), self._take(~is_first)

    def _take(self, chosen: npt.NDArray[np.bool_]) -> Self:
        return type(self)(logs=self.logs[chosen], truths=self.truths[chosen], videos=self.videos[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted temperature and its effect.

    All `*_after` values are cross-fitted: each half of the jobs is scaled by the temperature of the other half. Ends of
    intervals (`*_low`, `*_high`) are at 95% confidence.
    """

    temperature: float  # fitted on all jobs
    temperature_low: float
    temperature_high: float
    half_temperatures: tuple[float, float]  # fitted on each half; if they are far apart, there are too few jobs
    jobs: int  # with a label and a known answer
    wrong: int  # jobs whose label is wrong
    accuracy: float  # fraction of correct labels, which the temperature does not change
    confidence_before: float  # mean probability of the labels
    confidence_after: float
    ece_before: float  # expected calibration error over BINS bins
    ece_after: float
    nll_before: float  # mean negative log-likelihood of the known answers, in nats
    nll_after: float
    nll_change: float  # the value after minus the value before; calibration is shown to help if its interval is below 0
    nll_change_low: float
    nll_change_high: float


def calibrate(known: KnownAnswers) -> Calibration:
    """Fit a temperature on jobs on at least two videos, and measure its effect by two-fold cross-fitting.

    Raises:
        ManifestError: Too few labels are wrong, the best temperature is out of bounds, or it makes held-out answers
            worse.
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
            f"({change.low:+.4f} to {change.high:+.4f}). Use the raw probabilities, or add known answers."
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
            f"{'is' if wrong == 1 else 'are'} wrong; at least {FEWEST_WRONG} are needed, because only wrong labels "
            f"show how high confidence may be. Add known answers, or harder jobs."
        )


def _require_within_bounds(temperature: float, wrong: int, jobs: int) -> None:
    if not MIN_TEMPERATURE * _BOUND_MARGIN < temperature < MAX_TEMPERATURE / _BOUND_MARGIN:
        raise ManifestError(
            f"Cannot fit a temperature: the best one is beyond {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}, where it "
            f"does not generalise to other jobs ({wrong:,} of {pluralize(jobs, 'label')} are wrong). Check the "
            f"column answer, or add known answers."
        )


def expected_calibration_error(confidences: npt.NDArray[np.float64], is_right: npt.NDArray[np.bool_]) -> float:
    """Average the gap between confidence and accuracy over BINS bins of equal width in (0, 1], weighted by jobs.

    Equation 3 of Guo et al. 2017 (arXiv:1706.04599), after Naeini et al., AAAI 2015.
    """
    bins = np.clip(np.ceil(confidences * BINS).astype(np.int64) - 1, 0, BINS - 1)
    # The weight of a bin times its gap is the sum of its jobs' differences divided by the number of all jobs.
    gaps = np.bincount(bins, weights=confidences - is_right)
    return float(np.abs(gaps).sum() / len(confidences))


def _losses(probabilities: npt.NDArray[np.float64], truths: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    at_truth = probabilities[np.arange(len(truths)), truths]
    losses: npt.NDArray[np.float64] = -np.log(np.maximum(at_truth, np.finfo(np.float64).tiny))
    return losses


def log_table(rows: Sequence[Sequence[float]]) -> npt.NDArray[np.float64]:
    """Return the natural logarithms of probabilities; shape (J, C), minus infinity past a job's last choice."""
    table = np.full((len(rows), max(map(len, rows), default=1)), -np.inf)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = np.log(np.maximum(row, _LEAST_PROBABILITY))
    return table


def apply_temperature(logs: npt.NDArray[np.float64], temperature: float) -> npt.NDArray[np.float64]:
    """Scale log-probabilities from `log_table` by a temperature above 0.

    A temperature above 1 lowers confidence, one below 1 raises it; the most probable choice does not change.

    Returns:
        Probabilities; shape (J, C), each row summing to one, 0 past a job's last choice.
    """
    scaled = logs / temperature
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    tempered: npt.NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return tempered


def calibrate_probabilities(rows: Sequence[Sequence[float]], temperature: float) -> list[list[float]]:
    tempered = apply_temperature(log_table(rows), temperature).tolist()
    return [line[: len(row)] for line, row in zip(tempered, rows, strict=True)]


def fit_temperature(known: KnownAnswers) -> float:
    """Find the temperature with the least negative log-likelihood of the known answers, within its bounds.

    The function is convex in the inverse temperature, so bisection on its slope finds the minimum. The temperature is
    MIN_TEMPERATURE if every answer is correct, and MAX_TEMPERATURE if a uniform distribution is likelier.
    """
    finite = np.where(np.isfinite(known.logs), known.logs, 0.0)
    at_truth = known.logs[np.arange(len(known.truths)), known.truths]
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        slope = ((apply_temperature(known.logs, 1 / middle) * finite).sum(axis=1) - at_truth).mean()
        low, high = (middle, high) if slope < 0 else (low, middle)
    return float((low * high) ** -0.5)


def temperature_interval(known: KnownAnswers, temperature: float) -> tuple[float, float]:
    """Return the 95% confidence interval of a temperature that `fit_temperature` found within the bounds.

    The sandwich estimator of White, "Maximum likelihood estimation of misspecified models", Econometrica 50 (1982),
    because a single temperature never describes a model completely; clustered by videos (`tasks.evaluation.clusters`).
    The interval is symmetric in the logarithm, so it is the same if the inverse temperature is fitted.
    """
    finite = np.where(np.isfinite(known.logs), known.logs, 0.0)
    weights = apply_temperature(known.logs, temperature)
    means = (weights * finite).sum(axis=1)
    scores = known.logs[np.arange(len(known.truths)), known.truths] - means
    curvature = float(((weights * finite**2).sum(axis=1) - means**2).sum())
    # Standard error of the logarithm: that of the inverse temperature, times the temperature.
    error = float(np.sqrt(sum_variance(scores, known.videos))) / curvature * temperature
    reach = float(np.exp(t_quantile(known.videos) * error))
    return temperature / reach, temperature * reach
