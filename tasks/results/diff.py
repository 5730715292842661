"""Comparison of a run's answers with those of an earlier run, or with the answers that they replaced."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from infra.database.connect import database_errors
from sql.queries import read_query

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Engine

_DIFF = text(read_query("diff"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPair:
    job_id: str
    task: str | None
    label_before: str
    label_after: str
    margin_before: float
    margin_after: float

    @property
    def has_changed(self) -> bool:
        return self.label_before != self.label_after


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDiff:
    """Differences of the answers of one task, in numbers of jobs.

    Attributes:
        changed: Jobs with another label.
        up: Jobs whose margin rose.
        down: Jobs whose margin fell.
        margin_change: Mean change of the margin.
        labels: Changed jobs by their labels before and after, the most frequent first.
    """

    task: str | None
    jobs: int
    changed: int
    up: int
    down: int
    margin_change: float
    labels: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiff:
    """The jobs that have an answer on both sides.

    Attributes:
        pairs: Answers to the same question, in the order of job ids.
        other_questions: Number of jobs whose question has changed.
    """

    pairs: tuple[AnswerPair, ...]
    other_questions: int

    @property
    def tasks(self) -> list[TaskDiff]:
        names = sorted({pair.task for pair in self.pairs}, key=lambda name: name or "")
        return [_task_diff(name, [pair for pair in self.pairs if pair.task == name]) for name in names]


def _task_diff(task: str | None, pairs: Sequence[AnswerPair]) -> TaskDiff:
    changes = Counter((pair.label_before, pair.label_after) for pair in pairs if pair.has_changed)
    return TaskDiff(
        task=task,
        jobs=len(pairs),
        changed=changes.total(),
        up=sum(pair.margin_after > pair.margin_before for pair in pairs),
        down=sum(pair.margin_after < pair.margin_before for pair in pairs),
        margin_change=sum(pair.margin_after - pair.margin_before for pair in pairs) / len(pairs),
        labels=tuple((before, after, count) for (before, after), count in changes.most_common()),
    )


def compare_runs(engine: Engine, run_id: UUID, *, earlier: UUID | None) -> RunDiff:
    """Compare a run's answers with those of an earlier run; None compares with the answers that it replaced."""
    with database_errors(), engine.connect() as connection:
        rows = connection.execute(_DIFF, {"run_id": run_id, "earlier_run_id": earlier}).mappings().all()
    pairs = tuple(
        AnswerPair(**{name: value for name, value in row.items() if name != "is_same_question"})
        for row in rows
        if row["is_same_question"]
    )
    return RunDiff(pairs=pairs, other_questions=len(rows) - len(pairs))
