"""Temperature scaling of Guo et al., "On Calibration of Modern Neural Networks", ICML 2017 (arXiv:1706.04599)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from reelabel.digest import hash64

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownAnswers:
    """Labelled jobs with known answers.

    Attributes:
        logs: Logarithms of the model's probabilities; shape (J, C), minus infinity past a job's last choice.
        truths: Index of the correct choice; shape (J,).
        videos: Hash of each job's video, by whose order the jobs are split in halves; shape (J,).
    """

    logs: npt.NDArray[np.float64]
    truths: npt.NDArray[np.int64]
    videos: npt.NDArray[np.uint64]

    def __post_init__(self) -> None:
        """Check that the shapes agree."""
        if not (self.logs.ndim == 2 and len(self.logs) == len(self.truths) == len(self.videos)):  # noqa: PLR2004
            raise ValueError(
                f"shapes disagree: logs {self.logs.shape}, truths {self.truths.shape}, videos {self.videos.shape}"
            )

    @classmethod
    def of(cls, rows: Sequence[tuple[Sequence[float], int, str]]) -> Self:
        """Build from each job's probabilities, the index of its correct choice, and its video."""
        return cls(
            logs=log_table([probabilities for probabilities, _, _ in rows]),
            truths=np.array([truth for _, truth, _ in rows], dtype=np.int64),
            # Hash: a video may be a data: URI of any length.
            videos=np.array([hash64(video) for _, _, video in rows], dtype=np.uint64),
        )

    def halves(self) -> tuple[Self, Self]:
        """Split the jobs in two by a hash of their videos: no video is in both, whatever the order of jobs."""
        is_first = np.isin(self.videos, np.unique(self.videos)[::2])
        return self._take(is_first), self._take(~is_first)

    def _take(self, chosen: npt.NDArray[np.bool_]) -> Self:
        return type(self)(logs=self.logs[chosen], truths=self.truths[chosen], videos=self.videos[chosen])


MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
_BISECTIONS = 60
# Zero has no logarithm, and one job must not outweigh all the others.
_LEAST_PROBABILITY = 1e-12


def log_table(rows: Sequence[Sequence[float]]) -> npt.NDArray[np.float64]:
    """Build a table of the log-probabilities of jobs with different numbers of choices.

    Returns:
        Natural logarithms; shape (J, C), minus infinity past a job's last choice.
    """
    table = np.full((len(rows), max(map(len, rows), default=1)), -np.inf)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = np.log(np.maximum(row, _LEAST_PROBABILITY))
    return table


def apply_temperature(logs: npt.NDArray[np.float64], temperature: float) -> npt.NDArray[np.float64]:
    """Divide log-probabilities from `log_table` by a temperature above 0, and normalise to probabilities.

    A temperature above 1 lowers confidence, one below 1 raises it; the most probable choice does not change.

    Returns:
        Probabilities; shape (J, C), each row summing to one, 0 past a job's last choice.
    """
    scaled = logs / temperature
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    tempered: npt.NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return tempered


def calibrate_probabilities(rows: Sequence[Sequence[float]], temperature: float) -> list[list[float]]:
    """Calibrate the probabilities of jobs with different numbers of choices."""
    tempered = apply_temperature(log_table(rows), temperature).tolist()
    return [line[: len(row)] for line, row in zip(tempered, rows, strict=True)]


def fit_temperature(known: KnownAnswers) -> float:
    """Find the temperature that minimises the negative log-likelihood of the known answers.

    It is convex in the inverse temperature, so bisection on its slope finds the minimum.

    Returns:
        From MIN_TEMPERATURE to MAX_TEMPERATURE; the least if every answer is correct, since no confidence is then too
        high, and the most if a uniform distribution would be likelier.
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
    """Return the 95% confidence interval of a temperature that `fit_temperature` returned, not at a bound.

    The sandwich estimator of White, "Maximum likelihood estimation of misspecified models", Econometrica 50 (1982):
    one temperature is never the whole truth about a model. Its middle sums the scores of each video's jobs first, since
    they are not independent (`tasks.evaluation.clusters`). The interval is symmetric in the logarithm, which does not
    depend on whether the temperature or its inverse is fitted.
    """
    from tasks.evaluation.clusters import sum_variance, t_quantile  # noqa: PLC0415 - SciPy is slow to import

    finite = np.where(np.isfinite(known.logs), known.logs, 0.0)
    weights = apply_temperature(known.logs, temperature)
    means = (weights * finite).sum(axis=1)
    scores = known.logs[np.arange(len(known.truths)), known.truths] - means
    curvature = float(((weights * finite**2).sum(axis=1) - means**2).sum())
    # Of the logarithm: the standard error of the inverse temperature, times the temperature.
    error = float(np.sqrt(sum_variance(scores, known.videos))) / curvature * temperature
    reach = float(np.exp(t_quantile(known.videos) * error))
    return temperature / reach, temperature * reach
