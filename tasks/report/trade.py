"""What ways of asking are worth on known answers, as a page shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.evaluation.scores import CandidateScore, Evaluation, GroupScore

_EACH_END = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """An evaluation, and one of its ways of asking by subtask.

    Attributes:
        evaluation: All of it.
        way: Whose subtasks are shown; None where there is nothing beside the baseline.
        worst: Its subtasks that lose most by the baseline, the worst first.
        best: Those that win most, the best first; none that is among the worst.
    """

    evaluation: Evaluation
    way: CandidateScore | None
    worst: tuple[GroupScore, ...]
    best: tuple[GroupScore, ...]

    @property
    def drawn(self) -> tuple[GroupScore, ...]:
        """The subtasks from the worst to the best."""
        return (*self.worst, *reversed(self.best))


def trade_of(evaluation: Evaluation, spec_id: str) -> Trade:
    """Choose what to show of an evaluation.

    Args:
        evaluation: The evaluation.
        spec_id: The run's own way of asking; shown where it is compared with a baseline, else the first that is.
    """
    others = [spec for spec in evaluation.specs if spec.difference]
    way = next((spec for spec in others if spec.spec_id == spec_id), next(iter(others), None))
    ordered = evaluation.by_difference(way.name) if way else []
    worst = ordered[:_EACH_END]
    best = ordered[_EACH_END:][-_EACH_END:][::-1]
    return Trade(evaluation=evaluation, way=way, worst=tuple(worst), best=tuple(best))
