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
    from sqlalchemy import ColumnElement, Connection, Engine, RowMapping, Select

    from tasks.database.scope import Scope
    from tasks.domain import Job

_FAILURES = text(read_query("failures_by_code"))
IS_CURRENT = and_(RESULT.c.job_id == MANIFEST_JOBS.c.job_id, RESULT.c.job_digest == MANIFEST_JOBS.c.job_digest)


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
    """Effect of the order of choices on jobs whose choices were shown in several orders.

    Attributes:
        content: Number of jobs with the same label in every order.
        position: Number of jobs with the same position in every order, whatever the choice there.
        spread: Largest change of a probability between orders, averaged over the jobs.
    """

    jobs: int
    content: int
    position: int
    spread: float

    @property
    def warning(self) -> str:
        """A clause that warns if position decides most answers; empty otherwise."""
        if self.position <= self.jobs / 2:
            return ""
        return (
            f"Position decided {self.position / self.jobs:.0%} of the answers in several orders, not the choices: the "
            "model was probably never trained on other orders, and averaging them does not help; use one order "
            "(permutations 1), or another model"
        )

    def __str__(self) -> str:
        rest = self.jobs - self.content - self.position
        return (
            f"of {pluralize(self.jobs, 'job')}, content decided {self.content / self.jobs:.1%}, "
            f"position {self.position / self.jobs:.1%}, neither alone {rest / self.jobs:.1%}; "
            f"the order changed a probability by up to {self.spread:.3f}, on average over the jobs"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures with the same code, and the first job as an example.

    Attributes:
        since: When other runs recorded the first of them; None for failures of the run that is summarized.
        is_earlier: Whether that was before the start of that run.
    """

    code: str
    count: int
    job_id: str
    message: str
    since: datetime | None = None
    is_earlier: bool = False


def warn_of_low_mass(labels: int) -> str:
    """Return a clause that warns of labels below `LOW_CHOICE_MASS`; empty if there are none."""
    if not labels:
        return ""
    return (
        f"In {pluralize(labels, 'label')} the model gives all choices together less than {LOW_CHOICE_MASS:.0%} of the "
        "probability: it would have said something else, and the label means little; if it thinks before it answers, "
        "turn that off (model.chat_template_args) or use another model"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Scores by task, and failures by code with the most frequent first.

    Attributes:
        cut_short: Number of labels of files that are cut short.
        order: None if all choices were shown in one order only.
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
        return TaskScore(
            task=None,
            labels=sum(score.labels for score in self.tasks),
            known=sum(score.known for score in self.tasks),
            correct=sum(score.correct for score in self.tasks),
        )


def describe_rewritten(videos: int) -> str:
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

    The failures of the run `run_id` are separate from those of other runs, which `only_run` leaves out.
    """
    with temp_job_table(engine, jobs) as connection:
        rows = scope.matches(RESULT)
        if only_run:
            rows &= RESULT.c.run_id == run_id
        figures = read_figures(connection, rows)
        failures = connection.execute(_FAILURES, {**scope.key, "run_id": run_id}).mappings()
        return Summary(
            tasks=_scores(connection, rows),
            failures=tuple(FailureGroup(**row) for row in failures if not (only_run and row["since"])),
            cut_short=figures["cut_short"],
            cut_short_job_id=figures["cut_short_job_id"],
            order=_order(figures),
            low_mass=figures["low_mass"],
        )


def _scores(connection: Connection, rows: ColumnElement[bool]) -> tuple[TaskScore, ...]:
    query = (
        select(
            MANIFEST_JOBS.c.task,
            func.count().label("labels"),
            func.count(MANIFEST_JOBS.c.answer).label("known"),
            func.count().filter(RESULT.c.label == MANIFEST_JOBS.c.answer).label("correct"),
        )
        .join(RESULT, IS_CURRENT)
        .where(rows)
        .group_by(MANIFEST_JOBS.c.task)
        .order_by(MANIFEST_JOBS.c.task)
    )
    return tuple(TaskScore(**row) for row in connection.execute(query).mappings())


def _order(figures: RowMapping) -> OrderScore | None:
    names = ("content", "position", "spread")
    return (
        OrderScore(jobs=figures["in_orders"], **{name: figures[name] for name in names})
        if figures["in_orders"]
        else None
    )


def warn_of_labels(engine: Engine, *, run_id: UUID) -> list[str]:
    """Return clauses that warn of the labels of a run: of those that position decided, and those of a low mass."""
    with database_errors(), engine.connect() as connection:
        figures = connection.execute(_figures().where(RESULT.c.run_id == run_id)).mappings().one()
    order = _order(figures)
    return [*filter(None, (order.warning if order else "", warn_of_low_mass(figures["low_mass"])))]


def read_figures(connection: Connection, rows: ColumnElement[bool]) -> RowMapping:
    """Count some labels of the jobs in the temporary table MANIFEST_JOBS.

    The columns are `low_mass` (below `LOW_CHOICE_MASS`), `copied` (from another job), `cut_short` (of files that are)
    with the first `cut_short_job_id`, and the effect of the order of choices: see `OrderScore`.
    """
    query = _figures().join(MANIFEST_JOBS, IS_CURRENT).where(rows)
    return connection.execute(query).mappings().one()


def _figures() -> Select[Any]:
    is_cut_short = RESULT.c.decode_note.contains("cut short")
    return select(
        func.count().filter(RESULT.c.choice_mass < LOW_CHOICE_MASS).label("low_mass"),
        func.count(RESULT.c.copied_from).label("copied"),
        func.count().filter(is_cut_short).label("cut_short"),
        func.min(RESULT.c.job_id).filter(is_cut_short).label("cut_short_job_id"),
        func.count().filter(RESULT.c.permutations > 1).label("in_orders"),
        # Null in the rows of jobs whose choices were shown in one order.
        func.count().filter(RESULT.c.order_agreement == 1).label("content"),
        func.count().filter(RESULT.c.same_position).label("position"),
        func.avg(RESULT.c.order_spread).label("spread"),
    ).select_from(RESULT)
