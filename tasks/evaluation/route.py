"""Fits the margin below which jobs are escalated to the dense sampler, with a proven bound on its loss.

An estimate on the sample that selected the margin would be too optimistic. A margin is accepted only if the whole 95%
confidence interval of its loss is within the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil
from typing import TYPE_CHECKING, Self

import numpy as np

from infra.errors import ManifestError
from tasks.evaluation.clusters import design_effect, design_effects
from tasks.evaluation.significance import Z, paired_low

if TYPE_CHECKING:
    import numpy.typing as npt

FEWEST_JOBS = 100
FEWEST_VIDEOS = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedAnswers:
    """J jobs with known answers, answered from keyframes and with the dense sampler: columns of shape (J,)."""

    videos: npt.NDArray[np.uint64]  # hash of each job's video
    tasks: npt.NDArray[np.str_]  # each job's task; empty without one
    # Margin of the first answer; infinite if the first pass already used the dense sampler.
    margins: npt.NDArray[np.float64]
    # Whether the first answer is correct; `second_*` is always the same for the dense sampler.
    first_right: npt.NDArray[np.bool_]
    second_right: npt.NDArray[np.bool_]
    first_views: npt.NDArray[np.uint64]  # hash of the answer's view: video, segment and sampler
    second_views: npt.NDArray[np.uint64]
    first_frames: npt.NDArray[np.int64]  # frames decoded for the answer; the same for all jobs of a view
    second_frames: npt.NDArray[np.int64]
    first_s: npt.NDArray[np.float64]  # seconds of decoding, preprocessing and inference for the answer
    second_s: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        shapes = {each.name: getattr(self, each.name).shape for each in fields(self)}
        if len(set(shapes.values())) != 1:
            raise ValueError(f"columns have different shapes: {shapes}")

    def take(self, chosen: npt.NDArray[np.bool_]) -> Self:
        return type(self)(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPoint:
    """Cost and accuracy at one margin."""

    below: float | None  # margin below which jobs are escalated; None if all jobs use only the dense sampler
    asked_again: float  # fraction of the jobs that is escalated
    accuracy: float  # fraction of the jobs whose final answer is correct
    frames_decoded: int  # frames decoded in all passes; frames that jobs share count once per pass
    seconds: float  # of decoding, preprocessing and inference, from the rows of results


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenLoss:
    """Accuracy that jobs lose at a margin, compared with the dense sampler alone."""

    name: str  # task of the jobs; empty for all jobs
    jobs: int
    loss: float  # accuracy lost in the sample, -1 to 1; `at_least` and `at_most` are its 95% confidence interval
    at_least: float
    at_most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteProof:
    """The smallest margin that is proven to lose at most a given accuracy."""

    below: float | None  # the margin; None if no margin is proven that keeps a first answer
    overall: ProvenLoss  # the loss of all jobs at that margin, or else at the largest margin that keeps a first answer
    tasks: tuple[ProvenLoss, ...]  # the same by task, if there are several
    enough_jobs: int | None  # jobs that would prove a margin without a loss in the sample; None if no loss is allowed

    def unproven(self, within: float) -> tuple[ProvenLoss, ...]:
        return tuple(task for task in self.tasks if task.at_most > within)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFit:
    """The proof of a margin from a sample, with cost and accuracy."""

    jobs: int
    target: float  # accuracy to reach: that of the dense sampler minus the allowed loss
    proof: RouteProof
    proven: RoutingPoint | None  # cost and accuracy at the proven margin; None if none is proven
    first: RoutingPoint  # the same without escalation
    dense: RoutingPoint  # the same with the dense sampler alone


def fit_route(sample: PairedAnswers, within: float) -> RouteFit:
    """Find the smallest margin that provably loses at most `within`, 0 to 1, against the dense sampler.

    Raises:
        ManifestError: The sample is too small.
    """
    jobs, videos = len(sample.margins), len(np.unique(sample.videos))
    if jobs < FEWEST_JOBS or videos < FEWEST_VIDEOS:
        raise ManifestError(
            f"Only {jobs:,} jobs with a known answer, on {videos:,} videos, were answered both from keyframes and with "
            f"the dense sampler; fitting a margin needs at least {FEWEST_JOBS} jobs on {FEWEST_VIDEOS} videos. Fill "
            "in the column answer for more jobs."
        )
    proof = prove_margin(sample, within)
    dense = float(sample.second_right.mean())
    return RouteFit(
        jobs=jobs,
        target=dense - within,
        proof=proof,
        proven=None if proof.below is None else evaluate_margin(sample, proof.below),
        first=evaluate_margin(sample, 0.0),
        dense=RoutingPoint(
            below=None,
            asked_again=0.0,
            accuracy=dense,
            frames_decoded=_count_frames(sample.second_frames, sample.second_views),
            seconds=float(sample.second_s.sum()),
        ),
    )


def evaluate_margin(sample: PairedAnswers, below: float) -> RoutingPoint:
    """Return cost and accuracy if jobs with a smaller margin are escalated."""
    again = sample.margins < below
    first_frames = _count_frames(sample.first_frames, sample.first_views)
    return RoutingPoint(
        below=below,
        asked_again=float(again.mean()),
        accuracy=float(np.where(again, sample.second_right, sample.first_right).mean()),
        frames_decoded=first_frames + _count_frames(sample.second_frames[again], sample.second_views[again]),
        seconds=float(sample.first_s.sum() + sample.second_s[again].sum()),
    )


def prove_margin(sample: PairedAnswers, within: float) -> RouteProof:
    """Find the smallest margin such that it and all larger ones provably lose at most `within`.

    Margins are tested from the largest to the smallest, each at the full level, until the first fails. With such a
    fixed sequence, the probability that the chosen margin misses the target is at most that of one test, 2.5%: Maurer,
    Hothorn and Lehmacher, "Multiple comparisons in drug clinical trials and preclinical assays" (1995); for thresholds
    of a model, Angelopoulos et al., "Learn then Test" (arXiv:2110.01052).
    """
    belows, gained, lost = _discordant(sample)
    effect, jobs = _design_effect(sample), len(sample.margins)
    effects = np.maximum(effect, _effects_by_margin(sample, belows))
    at_most = -paired_low(gained=gained / effects, lost=lost / effects, jobs=jobs / effects)
    # From the largest margin that keeps a first answer: with the one after it, all answers are the dense sampler's.
    stays = np.logical_and.accumulate((at_most[:-1] <= within)[::-1])[::-1]
    below = float(belows[:-1][stays.argmax()]) if stays.any() else None
    shown = float(belows[max(0, len(belows) - 2)]) if below is None else below
    names = np.unique(sample.tasks)
    tasks = [prove_loss(sample.take(sample.tasks == name), shown, name=str(name)) for name in names]
    return RouteProof(
        below=below,
        overall=prove_loss(sample, shown),
        tasks=tuple(tasks) if len(tasks) > 1 else (),
        # With so many jobs, `paired_low` without differences is within the target.
        enough_jobs=ceil(effect * Z**2 * (1 - within) / within) if within else None,
    )


def prove_loss(sample: PairedAnswers, below: float, *, name: str = "") -> ProvenLoss:
    """Return the loss of jobs at a margin, with its interval."""
    kept = (sample.margins >= below) & np.isfinite(sample.margins)  # the others are the dense sampler's anyway
    gained = int((kept & sample.first_right & ~sample.second_right).sum())
    lost = int((kept & ~sample.first_right & sample.second_right).sum())
    jobs, effect = len(sample.margins), max(_design_effect(sample), _design_effect(sample, kept))
    ends = paired_low(
        gained=np.array([gained, lost]) / effect, lost=np.array([lost, gained]) / effect, jobs=jobs / effect
    )
    loss = (lost - gained) / jobs
    return ProvenLoss(name=name, jobs=jobs, loss=loss, at_least=float(ends[1]), at_most=float(-ends[0]))


def _discordant(
    sample: PairedAnswers,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the margins to test, ascending, and how many jobs only the first, and only the dense, answer has right.

    Only jobs that keep their first answer are counted; shapes (M + 1,) for M distinct margins of the sample.
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


def _design_effect(sample: PairedAnswers, kept: npt.NDArray[np.bool_] | None = None) -> float:
    """Return the design effect of the differences between both answers, or of those of jobs that keep their first."""
    differences = sample.second_right.astype(np.float64) - sample.first_right
    return design_effect(differences if kept is None else np.where(kept, differences, 0.0), sample.videos)


def _effects_by_margin(sample: PairedAnswers, belows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the design effect at each margin: answers may depend on their video the more, the surer they are."""
    differences = sample.second_right.astype(np.float64) - sample.first_right
    order = np.argsort(-sample.margins, kind="stable")
    kept = np.where(np.isfinite(sample.margins), differences, 0.0)[order]
    counts = len(order) - np.searchsorted(np.sort(sample.margins), belows)
    return np.array([1.0, *design_effects(kept, sample.videos[order])])[counts]


def _count_frames(frames: npt.NDArray[np.int64], views: npt.NDArray[np.uint64]) -> int:
    _, places = np.unique(views, return_index=True)
    return int(frames[places].sum())
