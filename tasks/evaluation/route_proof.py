"""How much accuracy a margin loses at most against the dense sampler, as far as a sample proves it.

An estimate on the sample that chose the margin promises too much: it is right half of the time at best. A margin is
taken here only if the whole 95% confidence interval of its loss lies within what may be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from tasks.evaluation.clusters import design_effect
from tasks.evaluation.significance import Z, paired_low, wilson_low

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.evaluation.route_sample import PairedAnswers


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The accuracy to reach.

    Attributes:
        within: Accuracy that may be lost against the dense sampler, 0 to 1.
        accuracy: Accuracy to reach instead; None uses `within`.
    """

    within: float = 0.01
    accuracy: float | None = None

    def of(self, sample: PairedAnswers) -> float:
        """Return the accuracy to reach on a sample."""
        return float(sample.second_right.mean()) - self.within if self.accuracy is None else self.accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenLoss:
    """What some jobs lose at a margin, compared with the dense sampler alone.

    Attributes:
        name: Their task; empty for all jobs.
        jobs: Number of jobs.
        loss: Accuracy lost in the sample, -1 to 1.
        at_least: Lower end of its 95% confidence interval.
        at_most: Upper end.
    """

    name: str
    jobs: int
    loss: float
    at_least: float
    at_most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteProof:
    """The smallest margin that is proven to reach the target.

    Attributes:
        below: The margin; None if none below which a job stays with its first answer is proven.
        overall: What all jobs lose at that margin; if it is None, at the largest margin that keeps a first answer.
        tasks: The same by task, if there are several.
        enough_jobs: Jobs that would prove the target for a margin at which the sample loses nothing.
    """

    below: float | None
    overall: ProvenLoss
    tasks: tuple[ProvenLoss, ...]
    enough_jobs: int | None

    def unproven(self, within: float) -> tuple[ProvenLoss, ...]:
        """Return the tasks that may lose more than this."""
        return tuple(task for task in self.tasks if task.at_most > within)


def prove_margin(sample: PairedAnswers, target: Target) -> RouteProof:
    """Find the smallest margin such that it and all larger ones provably reach the target.

    Margins are tested from the largest to the smallest, each at the full level, until the first fails. Such a fixed
    sequence keeps the probability that the chosen margin misses the target below that of one test, 2.5%: Maurer,
    Hothorn and Lehmacher, "Multiple comparisons in drug clinical trials and preclinical assays" (1995); for thresholds
    of a model, Angelopoulos et al., "Learn then Test" (arXiv:2110.01052).
    """
    belows, gained, lost = _discordant(sample)
    effect = _design_effect(sample)
    jobs = len(sample.margins)
    if target.accuracy is None:
        missing = -paired_low(gained=gained / effect, lost=lost / effect, jobs=jobs / effect) - target.within
    else:
        right = (sample.second_right.sum() + gained - lost) / effect
        missing = target.accuracy - wilson_low(right, jobs / effect)
    # From the largest margin that keeps an answer; at the next one, everything is the dense sampler's.
    stays = np.logical_and.accumulate((missing[:-1] <= 0)[::-1])[::-1]
    proven = bool(stays.any())
    below = float(belows[:-1][stays.argmax()]) if proven else None
    shown = float(belows[max(0, len(belows) - 2)]) if below is None else below
    names = np.unique(sample.tasks)
    return RouteProof(
        below=below,
        overall=prove_loss(sample, shown),
        tasks=tuple(prove_loss(sample.take(sample.tasks == name), shown, name=str(name)) for name in names)
        if len(names) > 1
        else (),
        enough_jobs=_enough_jobs(target, effect),
    )


def prove_loss(sample: PairedAnswers, below: float, *, name: str = "") -> ProvenLoss:
    """Return what jobs lose at a margin, with its interval."""
    kept = (sample.margins >= below) & np.isfinite(sample.margins)  # the others are the dense sampler's anyway
    gained = int((kept & sample.first_right & ~sample.second_right).sum())
    lost = int((kept & ~sample.first_right & sample.second_right).sum())
    jobs, effect = len(sample.margins), _design_effect(sample)
    ends = paired_low(
        gained=np.array([gained, lost]) / effect, lost=np.array([lost, gained]) / effect, jobs=jobs / effect
    )
    return ProvenLoss(
        name=name,
        jobs=jobs,
        loss=(lost - gained) / jobs,
        at_least=float(ends[1]),
        at_most=float(-ends[0]),
    )


def _discordant(
    sample: PairedAnswers,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return all different margins, ascending, with the jobs that only the first, or only the dense, answer has right.

    Counted are the jobs that keep their first answer; shapes (M + 1,) for M different margins of the sample.
    """
    asked = np.isfinite(sample.margins)
    margins, places = np.unique(sample.margins[asked], return_inverse=True)
    belows = np.array([0.0, *np.nextafter(margins, 2)])
    first, dense = sample.first_right[asked], sample.second_right[asked]
    counts = []
    for only in (first & ~dense, ~first & dense):
        at_margin = np.bincount(places, only, minlength=len(margins)).astype(np.int64)
        counts.append(np.array([*np.cumsum(at_margin[::-1])[::-1], 0]))
    return belows, counts[0], counts[1]


def _design_effect(sample: PairedAnswers) -> float:
    """Return the design effect of the differences between both answers, whatever the margin: those kept are fewer."""
    return design_effect(sample.second_right.astype(np.float64) - sample.first_right, sample.videos)


def _enough_jobs(target: Target, effect: float) -> int | None:
    """Return the jobs after which `paired_low` of no differences lies within the target."""
    if target.accuracy is not None or not target.within:
        return None
    return ceil(effect * Z**2 * (1 - target.within) / target.within)
