"""The labels of a dataset and spec in counts: what they say, how sure they are, how often they are right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Integer, case, cast, func, select

from tasks.database.tables import RESULT
from tasks.evaluation.calibration import BINS

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from tasks.report.run_key import Key

_MARGIN_BINS = 20
_MAX_LABELS = 16
_IS_RIGHT = RESULT.c.label == RESULT.c.answer
_CONFIDENCE = RESULT.c.probabilities[RESULT.c.choice_index + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCount:
    """How often one label was given; `label` is None for all that are too rare to be listed."""

    label: str | None
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginBin:
    """Jobs whose margin lies in one range, by whether the known answer was given.

    Attributes:
        low: Least margin, 0 to 1; the range is as wide as that of every other bin.
        high: Where the next range begins.
        unknown: Jobs without a known answer.
    """

    low: float
    high: float
    right: int
    wrong: int
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Jobs with a known answer, whose label's probability lies in one range.

    Attributes:
        confidence: Mean probability of their labels.
        accuracy: Share of them that are right.
    """

    confidence: float
    accuracy: float
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAccuracy:
    """Labels of one task with a known answer, and how many of them are right."""

    task: str
    known: int
    right: int


def count_labels(connection: Connection, key: Key) -> tuple[LabelCount, ...]:
    """Count labels, the most frequent first; those past the first some are one count."""
    jobs = func.count().label("jobs")
    ranked = (
        select(RESULT.c.label, jobs, func.row_number().over(order_by=(jobs.desc(), RESULT.c.label)).label("rank"))
        .where(key.of(RESULT))
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


def count_margins(connection: Connection, key: Key) -> tuple[MarginBin, ...]:
    """Count jobs by margin, in ranges of equal width; empty ranges, too."""
    number = _bin(RESULT.c.margin, _MARGIN_BINS, func.floor(RESULT.c.margin * _MARGIN_BINS))
    counts = {
        "right": func.count().filter(_IS_RIGHT),
        "wrong": func.count().filter(RESULT.c.answer.is_not(None), ~_IS_RIGHT),
        "unknown": func.count().filter(RESULT.c.answer.is_(None)),
    }
    query = select(number.label("number"), *(count.label(name) for name, count in counts.items()))
    rows = connection.execute(query.where(key.of(RESULT)).group_by(number)).mappings()
    found = {row["number"]: {name: row[name] for name in counts} for row in rows}
    nothing = dict.fromkeys(counts, 0)
    return tuple(
        MarginBin(low=at / _MARGIN_BINS, high=(at + 1) / _MARGIN_BINS, **found.get(at, nothing))
        for at in range(_MARGIN_BINS)
    )


def measure_reliability(connection: Connection, key: Key) -> tuple[Reliability, ...]:
    """Compare confidence and accuracy, over the bins of `expected_calibration_error`; empty bins are left out."""
    number = _bin(_CONFIDENCE, BINS, func.ceil(_CONFIDENCE * BINS) - 1)
    query = (
        select(
            func.avg(_CONFIDENCE).label("confidence"),
            func.avg(cast(_IS_RIGHT, Integer)).label("accuracy"),
            func.count().label("jobs"),
        )
        .where(key.of(RESULT), RESULT.c.answer.is_not(None))
        .group_by(number)
        .order_by(number)
    )
    rows = connection.execute(query).mappings()
    return tuple(
        Reliability(confidence=row["confidence"], accuracy=float(row["accuracy"]), jobs=row["jobs"]) for row in rows
    )


def calibration_error(bins: tuple[Reliability, ...]) -> float | None:
    """Average how far confidence and accuracy are apart, weighted by jobs; None where no answer is known."""
    jobs = sum(each.jobs for each in bins)
    return sum(abs(each.confidence - each.accuracy) * each.jobs for each in bins) / jobs if jobs else None


def score_tasks(connection: Connection, key: Key) -> tuple[TaskAccuracy, ...]:
    """Count right labels by task, the tasks without a known answer left out."""
    task = func.coalesce(RESULT.c.task, "")
    query = (
        select(task.label("task"), func.count().label("known"), func.count().filter(_IS_RIGHT).label("right"))
        .where(key.of(RESULT), RESULT.c.answer.is_not(None))
        .group_by(task)
        .order_by(task)
    )
    return tuple(TaskAccuracy(**row) for row in connection.execute(query).mappings())


def _bin(value: ColumnElement[float], bins: int, number: ColumnElement[float]) -> ColumnElement[int]:
    """Keep a bin's number within bounds that rounding may overstep."""
    return case((value <= 0, 0), else_=cast(func.least(func.greatest(number, 0), bins - 1), Integer))
