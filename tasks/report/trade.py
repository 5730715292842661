"""The trade-off section of a report: candidates of an evaluation, compared on known answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.evaluation.scores import CandidateScore, Evaluation, GroupScore

_EACH_END = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeOff:
    """An evaluation, and one of its candidates by subtask.

    Attributes:
        evaluation: The evaluation.
        candidate: The candidate whose subtasks are shown; None if there is only the baseline.
        worst: Subtasks that lose most compared with the baseline, the worst first.
        best: Other subtasks, those that gain most first.
    """

    evaluation: Evaluation
    candidate: CandidateScore | None
    worst: tuple[GroupScore, ...]
    best: tuple[GroupScore, ...]

    @property
    def drawn(self) -> tuple[GroupScore, ...]:
        """The subtasks shown, from the worst to the best."""
        return (*self.worst, *reversed(self.best))


def select_trade_off(evaluation: Evaluation, spec_id: str) -> TradeOff:
    """Select what to show of an evaluation: the run's candidate, or else the first one compared with the baseline."""
    others = [spec for spec in evaluation.specs if spec.difference]
    candidate = next((spec for spec in others if spec.spec_id == spec_id), next(iter(others), None))
    ordered = evaluation.by_difference(candidate.name) if candidate else []
    worst = ordered[:_EACH_END]
    best = ordered[_EACH_END:][-_EACH_END:][::-1]
    return TradeOff(evaluation=evaluation, candidate=candidate, worst=tuple(worst), best=tuple(best))
