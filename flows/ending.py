"""How a run ended, as Prefect shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefect.states import Completed

if TYPE_CHECKING:
    from prefect import State

    from tasks.results.audit import AuditReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """What a run came to.

    Attributes:
        asked: Jobs that it had to ask.
        report: The audit of all of its manifest's jobs.
    """

    asked: int
    report: AuditReport

    def __str__(self) -> str:
        """Say it in a sentence or two."""
        return str(self.report) if self.asked else f"Nothing was left to ask. {self.report}"


def completed(sentence: object) -> State[str]:
    """End a flow run well, its message the sentence rather than `All states completed`."""
    return Completed(message=str(sentence), data=str(sentence))
