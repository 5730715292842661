"""What failed, by code."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from tasks.results.tables import FAILURE

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from tasks.report.key import Key

_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures of one code at one stage, and some of them: job ids and messages."""

    code: str
    stage: str
    jobs: int
    examples: tuple[tuple[str, str], ...]


def group_failures(connection: Connection, key: Key) -> tuple[FailureGroup, ...]:
    """Group failures, the most frequent code first."""
    same = (FAILURE.c.code, FAILURE.c.stage)
    ranked = (
        select(
            *(FAILURE.c[name] for name in ("code", "stage", "job_id", "message")),
            func.count().over(partition_by=same).label("jobs"),
            func.row_number().over(partition_by=same, order_by=FAILURE.c.job_id).label("rank"),
        )
        .where(key.of(FAILURE))
        .subquery()
    )
    order = (ranked.c.jobs.desc(), ranked.c.code, ranked.c.stage, ranked.c.rank)
    rows = connection.execute(select(ranked).where(ranked.c.rank <= _EXAMPLES).order_by(*order)).all()
    groups = ((group, list(found)) for group, found in groupby(rows, attrgetter("code", "stage", "jobs")))
    return tuple(
        FailureGroup(code=code, stage=stage, jobs=jobs, examples=tuple((row.job_id, row.message) for row in found))
        for (code, stage, jobs), found in groups
    )
