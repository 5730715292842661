"""Label statistics of a dataset and spec: frequency, margin, calibration and accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Integer, case, cast, func, select

from tasks.database.tables import RESULT
from tasks.evaluation.calibration import BINS

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from tasks.database.scope import Scope

_BINS = 20  # so that the first holds what is below LOW_CHOICE_MASS
_MAX_LABELS = 16
_IS_RIGHT = RESULT.c.label == RESULT.c.answer
_CONFIDENCE = RESULT.c.probabilities[RESULT.c.choice_index + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCount:
    """Number of jobs with one label; `label` is None for all labels too rare to be listed."""

    label: str | None
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Number of jobs with a value in one bin of a histogram, by whether the label is correct.

    Attributes:
        low: Lower bound of the value, 0 to 1; all bins have the same width.
        high: Upper bound.
        unknown: Jobs without a known answer.
    """

    low: float
    high: float
    right: int
    wrong: int
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Calibration of the jobs with a known answer whose confidence falls into one bin.

    Attributes:
        confidence: Mean probability of their labels.
        accuracy: Share of correct labels.
    """

    confidence: float
    accuracy: float
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAccuracy:
    """Number of labels of one task whose answer is known, and how many of them are correct."""

    task: str
    known: int
    right: int


def count_labels(connection: Connection, scope: Scope) -> tuple[LabelCount, ...]:
    """Count labels, the most frequent first; combine the rare ones into one count."""
    jobs = func.count().label("jobs")
    ranked = (
        select(RESULT.c.label, jobs, func.row_number().over(order_by=(jobs.desc(), RESULT.c.label)).label("rank"))
        .where(scope.matches(RESULT))
        .group_by(RESULT.c.label)
        .subquery()
    )
    name = case((ranked.c.rank <= _MAX_LABELS, ranked.c.label), else_=None)
    query = (
        select(name.label("label"), cast(func.sum(ranked.c.jobs), Integer).label("jobs"))
        .group_by(name)
        .order_by(name.is_(None), func.min(ranked.c.rank))
    )
    return tuple(LabelCount(**row) for row in connection.execute(query).mappings())


def count_margins(connection: Connection, scope: Scope) -> tuple[Bin, ...]:
    """Count jobs by margin, in bins of equal width, including empty bins."""
    return _histogram(connection, scope, RESULT.c.margin)


def count_choice_masses(connection: Connection, scope: Scope) -> tuple[Bin, ...]:
    """Count jobs by the probability of all choices together; the first bin holds those below `LOW_CHOICE_MASS`."""
    return _histogram(connection, scope, RESULT.c.choice_mass)


def _histogram(connection: Connection, scope: Scope, value: ColumnElement[float]) -> tuple[Bin, ...]:
    number = _bin(value, _BINS, func.floor(value * _BINS))
    counts = {
        "right": func.count().filter(_IS_RIGHT),
        "wrong": func.count().filter(RESULT.c.answer.is_not(None), ~_IS_RIGHT),
        "unknown": func.count().filter(RESULT.c.answer.is_(None)),
    }
    query = select(number.label("number"), *(count.label(name) for name, count in counts.items()))
    rows = connection.execute(query.where(scope.matches(RESULT), value.is_not(None)).group_by(number)).mappings()
    found = {row["number"]: {name: row[name] for name in counts} for row in rows}
    empty = dict.fromkeys(counts, 0)
    return tuple(Bin(low=at / _BINS, high=(at + 1) / _BINS, **found.get(at, empty)) for at in range(_BINS))


def measure_reliability(connection: Connection, scope: Scope) -> tuple[Reliability, ...]:
    """Compare confidence and accuracy in the bins of `expected_calibration_error`, omitting empty bins."""
    number = _bin(_CONFIDENCE, BINS, func.ceil(_CONFIDENCE * BINS) - 1)
    query = (
        select(
            func.avg(_CONFIDENCE).label("confidence"),
            func.avg(cast(_IS_RIGHT, Integer)).label("accuracy"),
            func.count().label("jobs"),
        )
        .where(scope.matches(RESULT), RESULT.c.answer.is_not(None))
        .group_by(number)
        .order_by(number)
    )
    rows = connection.execute(query).mappings()
    return tuple(
        Reliability(confidence=row["confidence"], accuracy=float(row["accuracy"]), jobs=row["jobs"]) for row in rows
    )


def calibration_error(bins: tuple[Reliability, ...]) -> float | None:
    """Return the mean gap between confidence and accuracy, weighted by jobs; None if no answer is known."""
    jobs = sum(each.jobs for each in bins)
    return sum(abs(each.confidence - each.accuracy) * each.jobs for each in bins) / jobs if jobs else None


def score_tasks(connection: Connection, scope: Scope) -> tuple[TaskAccuracy, ...]:
    """Count correct labels by task, omitting tasks without a known answer."""
    task = func.coalesce(RESULT.c.task, "")
    query = (
        select(task.label("task"), func.count().label("known"), func.count().filter(_IS_RIGHT).label("right"))
        .where(scope.matches(RESULT), RESULT.c.answer.is_not(None))
        .group_by(task)
        .order_by(task)
    )
    return tuple(TaskAccuracy(**row) for row in connection.execute(query).mappings())


def _bin(value: ColumnElement[float], bins: int, number: ColumnElement[float]) -> ColumnElement[int]:
    """Return the index of a value's bin, clamped because rounding may exceed the bounds."""
    return case((value <= 0, 0), else_=cast(func.least(func.greatest(number, 0), bins - 1), Integer))
