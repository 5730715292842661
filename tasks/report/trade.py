"""An evaluation as a report shows it: candidates compared on known answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.evaluation.scores import CandidateScore, Evaluation, GroupScore

_EACH_END = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """An evaluation, and one of its candidates by subtask.

    Attributes:
        evaluation: All of it.
        candidate: The one whose subtasks are shown; None if there is only the baseline.
        worst: Its subtasks that lose most against the baseline, the worst first.
        best: Those that gain most, the best first, without any of the worst.
    """

    evaluation: Evaluation
    candidate: CandidateScore | None
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
        spec_id: The run's own spec. Its candidate is shown if it is compared with the baseline, otherwise the first
            one that is.
    """
    others = [spec for spec in evaluation.specs if spec.difference]
    candidate = next((spec for spec in others if spec.spec_id == spec_id), next(iter(others), None))
    ordered = evaluation.by_difference(candidate.name) if candidate else []
    worst = ordered[:_EACH_END]
    best = ordered[_EACH_END:][-_EACH_END:][::-1]
    return Trade(evaluation=evaluation, candidate=candidate, worst=tuple(worst), best=tuple(best))
