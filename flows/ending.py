"""The result of a run, as the state message in Prefect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefect.states import Completed

if TYPE_CHECKING:
    from prefect import State

    from tasks.results.audit import AuditReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run.

    Attributes:
        asked: Number of jobs that it answered.
        report: The audit of the jobs of its manifest.
    """

    asked: int
    report: AuditReport

    def __str__(self) -> str:
        """Return a sentence or two."""
        return str(self.report) if self.asked else f"Nothing to do. {self.report}"


def completed_state(sentence: object) -> State[str]:
    """Return a Completed state whose message is the sentence, instead of Prefect's default."""
    return Completed(message=str(sentence), data=str(sentence))
