"""Selection of the jobs that a report shows individually: noteworthy ones first, then a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Text, cast, func, literal, select

from tasks.database.tables import FAILURE, RESULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement, Connection, Select

    from tasks.database.scope import Scope

MAX_JOBS = 300
_EACH = 40
_PER_CODE = 8
_SEED = 1
# Total time of a job: its video and its answer.
SPENT_MS: ColumnElement[float] = (
    RESULT.c.fetch_ms
    + RESULT.c.decode_ms
    + RESULT.c.embed_ms
    + RESULT.c.cache_write_ms
    + RESULT.c.cache_read_ms
    + RESULT.c.preprocess_ms
    + RESULT.c.inference_ms
)


def choose_jobs(
    connection: Connection, scope: Scope, *, named: Sequence[str], changed: Iterable[str]
) -> dict[str, list[str]]:
    """Choose up to MAX_JOBS jobs, deterministically, among them those that are named or whose label has changed.

    Returns:
        Reasons for choosing each job, by job id, in descending priority for including frames.
    """
    chosen: dict[str, list[str]] = {}
    groups: list[tuple[str, Iterable[str]]] = [
        ("requested", named),
        ("failed", _ids(connection, _failed(scope))),
        ("changed label", list(changed)[:_EACH]),
        ("wrong", _ids(connection, _wrong(scope))),
        ("low margin", _ids(connection, _labels(scope).order_by(RESULT.c.margin, RESULT.c.job_id).limit(_EACH))),
        ("slow", _ids(connection, _labels(scope).order_by(SPENT_MS.desc(), RESULT.c.job_id).limit(_EACH // 2))),
        ("sample", _ids(connection, _sample(scope))),
    ]
    for reason, job_ids in groups:
        for job_id in job_ids:
            if job_id in chosen or len(chosen) < MAX_JOBS:
                chosen.setdefault(job_id, []).append(reason)
    return {
        job_id: reasons[:-1] if len(reasons) > 1 and reasons[-1] == "sample" else reasons
        for job_id, reasons in chosen.items()
    }


def _ids(connection: Connection, query: Select[str]) -> list[str]:
    return list(connection.execute(query).scalars())


def _labels(scope: Scope) -> Select[str]:
    return select(RESULT.c.job_id).where(scope.matches(RESULT))


def _failed(scope: Scope) -> Select[str]:
    rank = func.row_number().over(partition_by=FAILURE.c.code, order_by=FAILURE.c.job_id).label("rank")
    ranked = select(FAILURE.c.job_id, rank).where(scope.matches(FAILURE)).subquery()
    return (
        select(ranked.c.job_id).where(ranked.c.rank <= _PER_CODE).order_by(ranked.c.rank, ranked.c.job_id).limit(_EACH)
    )


def _wrong(scope: Scope) -> Select[str]:
    is_wrong = RESULT.c.label != RESULT.c.answer
    return _labels(scope).where(is_wrong).order_by(RESULT.c.margin.desc(), RESULT.c.job_id).limit(_EACH)


def _sample(scope: Scope) -> Select[str]:
    """Draw a uniform sample, ordered by a seeded hash of the ids so that it is reproducible."""
    order = func.hashtextextended(cast(RESULT.c.job_id, Text), literal(_SEED))
    return _labels(scope).order_by(order, RESULT.c.job_id).limit(MAX_JOBS)
