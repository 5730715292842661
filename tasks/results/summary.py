"""Summary of a manifest's results: accuracy by task, and failures by code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, select, text

from infra.database.connect import database_errors
from reelabel.text import pluralize
from sql.queries import read_query
from tasks.database.tables import RESULT
from tasks.database.temp_table import MANIFEST_JOBS, temp_job_table
from tasks.domain import LOW_CHOICE_MASS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    import polars as pl
    from sqlalchemy import ColumnElement, Connection, Engine, Select, Table

    from tasks.database.scope import Scope
    from tasks.domain import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskScore:
    """Accuracy of one task.

    Attributes:
        labels: Number of jobs with a label.
        known: Number of these whose answer is known.
        correct: Number of these whose label is that answer.
    """

    task: str | None
    labels: int
    known: int
    correct: int

    @property
    def accuracy(self) -> float | None:
        """Fraction of the known answers that the labels match; None if none is known."""
        return self.correct / self.known if self.known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderScore:
    """Effect of the order of choices, for jobs whose choices were shown in several orders.

    Attributes:
        jobs: Number of labels of such jobs.
        content: Number of these with the same label in every order.
        position: Number of these with the same position in every order, whatever the choice there.
        spread: Largest change of a probability between orders, as a mean over the jobs.
    """

    jobs: int
    content: int
    position: int
    spread: float

    @property
    def warning(self) -> str:
        """Warn, in a clause, if position decides most answers; empty if it does not."""
        if self.position <= self.jobs / 2:
            return ""
        return (
            f"Position decided {self.position / self.jobs:.0%} of the answers in several orders, not the choices: the "
            "model was probably never trained on other orders, and averaging them does not help; use one order "
            "(permutations 1), or another model"
        )

    def __str__(self) -> str:
        """Describe the effect in one sentence."""
        rest = self.jobs - self.content - self.position
        return (
            f"of {pluralize(self.jobs, 'job')}, content decided {self.content / self.jobs:.1%}, "
            f"position {self.position / self.jobs:.1%}, neither alone {rest / self.jobs:.1%}; "
            f"the order changed a probability by up to {self.spread:.3f}, on average over the jobs"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures with the same code, and one of them as an example.

    Attributes:
        since: When the first of them was recorded, if by other runs than the one that is summarized.
        is_earlier: Whether these other runs recorded them before the start of that one.
    """

    code: str
    count: int
    job_id: str
    message: str
    since: datetime | None = None
    is_earlier: bool = False


def warn_of_low_mass(labels: int) -> str:
    """Warn, in a clause, of so many labels below `LOW_CHOICE_MASS`; empty if there are none."""
    if not labels:
        return ""
    return (
        f"In {pluralize(labels, 'label')} the model gives all choices together less than {LOW_CHOICE_MASS:.0%} of the "
        "probability: it would have said something else, and the label means little; if it thinks before it answers, "
        "turn that off (model.chat_template_args) or use another model"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Scores by task, failures by code with the most frequent first, and labels of truncated files.

    Attributes:
        cut_short: Number of labels of files that are cut short.
        order: Effect of the order of choices; None if every job was answered in one order only.
        low_mass: Number of labels below `LOW_CHOICE_MASS`.
    """

    tasks: tuple[TaskScore, ...]
    failures: tuple[FailureGroup, ...]
    cut_short: int = 0
    cut_short_job_id: str | None = None
    order: OrderScore | None = None
    low_mass: int = 0

    @property
    def overall(self) -> TaskScore:
        """Score over all tasks."""
        return TaskScore(
            task=None,
            labels=sum(score.labels for score in self.tasks),
            known=sum(score.known for score in self.tasks),
            correct=sum(score.correct for score in self.tasks),
        )


def describe_rewritten(videos: int) -> str:
    """Say that cached files of some videos were not used; the column `decode_note` of their labels says why."""
    return f"the cached files of {pluralize(videos, 'video')} did not match what was asked for, and were rewritten"


def summarize_results(
    engine: Engine,
    scope: Scope,
    *,
    jobs: Sequence[Job] | Iterable[pl.DataFrame],
    run_id: UUID | None = None,
    only_run: bool = False,
) -> Summary:
    """Summarize a manifest's labels and failures under a spec, using the manifest's known answers.

    The failures of the run `run_id` are told apart from those of others, which `only_run` leaves out.
    """
    with temp_job_table(engine, jobs) as connection:
        rows = scope.matches(RESULT)
        if only_run:
            rows &= RESULT.c.run_id == run_id
        cut_short, job_id = _cut_short(connection, rows)
        failures = _failures(connection, scope, run_id)
        return Summary(
            tasks=_scores(connection, rows),
            failures=tuple(group for group in failures if not (only_run and group.since)),
            cut_short=cut_short,
            cut_short_job_id=job_id,
            order=_order(connection, rows),
            low_mass=count_asked_low_mass(connection, rows),
        )


def _scores(connection: Connection, rows: ColumnElement[bool]) -> tuple[TaskScore, ...]:
    query = (
        select(
            MANIFEST_JOBS.c.task,
            func.count().label("labels"),
            func.count(MANIFEST_JOBS.c.answer).label("known"),
            func.count().filter(RESULT.c.label == MANIFEST_JOBS.c.answer).label("correct"),
        )
        .join(RESULT, _is_current(RESULT))
        .where(rows)
        .group_by(MANIFEST_JOBS.c.task)
        .order_by(MANIFEST_JOBS.c.task)
    )
    return tuple(TaskScore(**row) for row in connection.execute(query).mappings())


def _is_current(table: Table) -> ColumnElement[bool]:
    return and_(table.c.job_id == MANIFEST_JOBS.c.job_id, table.c.job_digest == MANIFEST_JOBS.c.job_digest)


def _failures(connection: Connection, scope: Scope, run_id: UUID | None) -> tuple[FailureGroup, ...]:
    rows = connection.execute(text(read_query("failures_by_code")), {**scope.key, "run_id": run_id})
    return tuple(FailureGroup(**row) for row in rows.mappings())


def _order(connection: Connection, rows: ColumnElement[bool]) -> OrderScore | None:
    query = _order_counts().join(MANIFEST_JOBS, _is_current(RESULT)).where(rows, RESULT.c.permutations > 1)
    row = connection.execute(query).mappings().one()
    return OrderScore(**row) if row["jobs"] else None


def read_order(engine: Engine, *, run_id: UUID) -> OrderScore | None:
    """Read the effect of the order of choices on the labels of one run; None if it asked in one order only."""
    query = _order_counts().where(RESULT.c.run_id == run_id, RESULT.c.permutations > 1)
    with database_errors(), engine.connect() as connection:
        row = connection.execute(query).mappings().one()
    return OrderScore(**row) if row["jobs"] else None


def count_asked_low_mass(connection: Connection, rows: ColumnElement[bool]) -> int:
    """Count the labels below `LOW_CHOICE_MASS` among those of the jobs in the temporary table MANIFEST_JOBS."""
    return int(connection.scalar(_low_mass_count().join(MANIFEST_JOBS, _is_current(RESULT)).where(rows)) or 0)


def count_copied(connection: Connection, rows: ColumnElement[bool]) -> int:
    """Count the labels that were copied from other jobs among those of the jobs in the temporary table."""
    count = select(func.count()).select_from(RESULT).join(MANIFEST_JOBS, _is_current(RESULT))
    return int(connection.scalar(count.where(rows, RESULT.c.copied_from.is_not(None))) or 0)


def count_low_mass(engine: Engine, *, run_id: UUID) -> int:
    """Count the labels of one run below `LOW_CHOICE_MASS`."""
    with database_errors(), engine.connect() as connection:
        return int(connection.scalar(_low_mass_count().where(RESULT.c.run_id == run_id)) or 0)


def _low_mass_count() -> Select[int]:
    return select(func.count()).select_from(RESULT).where(RESULT.c.choice_mass < LOW_CHOICE_MASS)


def _order_counts() -> Select[Any]:
    return select(
        func.count().label("jobs"),
        func.count().filter(RESULT.c.order_agreement == 1).label("content"),
        func.count().filter(RESULT.c.same_position).label("position"),
        func.avg(RESULT.c.order_spread).label("spread"),
    )


def _cut_short(connection: Connection, rows: ColumnElement[bool]) -> tuple[int, str | None]:
    query = (
        select(func.count(), func.min(RESULT.c.job_id))
        .join(MANIFEST_JOBS, _is_current(RESULT))
        .where(rows, RESULT.c.decode_note.contains("cut short"))
    )
    count, job_id = connection.execute(query).one()
    return count, job_id
