"""Computes an evaluation from the labels of several candidates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from tasks.domain import LOW_CHOICE_MASS
from tasks.evaluation.calibration import expected_calibration_error
from tasks.evaluation.scores import CandidateScore, Cost, Evaluation, GroupScore
from tasks.evaluation.significance import adjust_by_holm, paired_difference, proportion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.evaluation.scores import Difference

_Score = TypeVar("_Score", CandidateScore, GroupScore)
_TASK, _SUBTASK = ["task"], ["task", "subtask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateResults:
    name: str  # unique display name
    spec_id: str  # spec of its results in the database; empty if they are not stored
    model: str
    sampling: dict[str, Any]  # as returned by `Sampling.to_dict`
    # Columns `job_id`, `label`, `probabilities` (a list, one per choice), and `choice_mass`, null if unknown.
    labels: pl.DataFrame = field(repr=False)
    failed: Sequence[str] = field(default=(), repr=False)  # ids of the jobs that failed
    cost: Cost = field(default_factory=Cost)


def compare_candidates(
    jobs: pl.DataFrame,
    results: Sequence[CandidateResults],
    *,
    baseline: str,
    manifest_uri: str = "",
    dataset: str = "",
) -> Evaluation:
    """Score candidates on known answers, and compare each with the baseline.

    `jobs` has the columns `job_id`, `answer`, `task` and `subtask`. Jobs without an answer are ignored, as are labels
    of other jobs.
    """
    known = jobs.filter(pl.col("answer").is_not_null())
    judged = {each.name: _judge(known, each.labels) for each in results}
    against = {name: None if name == baseline else judged[baseline] for name in judged}
    return Evaluation(
        manifest_uri=manifest_uri,
        dataset=dataset,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        jobs=len(jobs),
        known=len(known),
        baseline=baseline,
        specs=_adjusted([_score(each, known, judged[each.name], against[each.name]) for each in results]),
        tasks=_grouped(judged, against, _TASK) if known["task"].is_not_null().any() else (),
        subtasks=_grouped(judged, against, _SUBTASK) if known["subtask"].is_not_null().any() else (),
    )


def _judge(known: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    return known.join(labels, on="job_id", maintain_order="left").select(
        "job_id",
        *_SUBTASK,
        is_right=pl.col("label") == pl.col("answer"),
        confidence=pl.col("probabilities").list.max(),
        is_low_mass=pl.col("choice_mass") < LOW_CHOICE_MASS,
    )


def _score(
    results: CandidateResults, known: pl.DataFrame, judged: pl.DataFrame, against: pl.DataFrame | None
) -> CandidateScore:
    is_right, confidences = judged["is_right"].to_numpy(), judged["confidence"].to_numpy()
    return CandidateScore(
        name=results.name,
        spec_id=results.spec_id,
        model=results.model,
        sampling=results.sampling,
        jobs=len(known),
        labels=len(judged),
        failures=len(known.filter(pl.col("job_id").is_in(list(results.failed)))),
        correct=int(is_right.sum()),
        accuracy=proportion(int(is_right.sum()), len(judged)) if len(judged) else None,
        calibration_error=expected_calibration_error(confidences, is_right) if len(judged) else None,
        low_mass=int(judged["is_low_mass"].sum()),
        difference=_difference(judged, against),
        cost=results.cost,
    )


def _difference(judged: pl.DataFrame, against: pl.DataFrame | None) -> Difference | None:
    if against is None:
        return None
    pairs = judged.join(against, on="job_id", suffix="_baseline")
    if pairs.is_empty():
        return None
    return paired_difference(pairs["is_right"].to_numpy(), pairs["is_right_baseline"].to_numpy())


def _grouped(
    judged: dict[str, pl.DataFrame], against: dict[str, pl.DataFrame | None], keys: list[str]
) -> tuple[GroupScore, ...]:
    scores = [score for name in judged for score in _adjusted(_groups(name, judged[name], against[name], keys))]
    return tuple(sorted(scores, key=lambda score: (score.task or "", score.subtask or "")))


def _groups(name: str, judged: pl.DataFrame, against: pl.DataFrame | None, keys: list[str]) -> list[GroupScore]:
    return [
        GroupScore(
            spec=name,
            task=group[0],
            subtask=group[1] if len(group) > 1 else None,
            jobs=len(part),
            correct=int(part["is_right"].sum()),
            accuracy=proportion(int(part["is_right"].sum()), len(part)),
            difference=_difference(part, against),
        )
        for group, part in judged.partition_by(keys, as_dict=True).items()
    ]


def _adjusted(scores: list[_Score]) -> tuple[_Score, ...]:
    differences = [score.difference for score in scores if score.difference]
    adjusted = iter(adjust_by_holm([difference.p_value for difference in differences]))
    return tuple(
        replace(score, difference=replace(score.difference, p_holm=next(adjusted))) if score.difference else score
        for score in scores
    )
