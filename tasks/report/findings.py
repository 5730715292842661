"""What a page points out: failures by code, doubtful labels, the slowest jobs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from reelabel.coverage import coverage_warnings
from reelabel.wording import pluralize
from tasks.database.tables import FAILURE, RESULT
from tasks.report.choose import SPENT_MS

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Connection, RowMapping

    from tasks.report.run_key import Key


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


def find_doubts(connection: Connection, key: Key, run: RowMapping) -> tuple[str, ...]:
    """Say in a sentence each what to know before relying on the labels."""
    query = select(
        func.count().filter(RESULT.c.decode_note.contains("cut short")).label("cut_short"),
        func.count().filter(RESULT.c.same_position).label("by_position"),
    ).where(key.of(RESULT))
    counts = connection.execute(query).mappings().one()
    said = [f"{line}." for line in coverage_warnings(run["coverage"])]
    if counts["cut_short"]:
        said.append(f"{pluralize(counts['cut_short'], 'label')} rest on what is left of a video that is cut short.")
    if counts["by_position"]:
        said.append(
            f"In {pluralize(counts['by_position'], 'job')} every order of the choices chose the same position, "
            "whatever stood there."
        )
    if run["state"] != "running" and run["message"] and not run["message"].startswith("Reconciled"):
        said.append(run["message"])
    return tuple(said)


_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowJob:
    """One job; its video's milliseconds are shared with the other jobs of the video."""

    job_id: str
    spent_ms: float
    fetch_ms: float
    decode_ms: float
    cache_ms: float
    preprocess_ms: float
    inference_ms: float


def find_slowest(connection: Connection, key: Key, run_id: UUID) -> tuple[SlowJob, ...]:
    """List the jobs of one run that took longest, the slowest first."""
    query = (
        select(
            SPENT_MS.label("spent_ms"),
            (RESULT.c.cache_write_ms + RESULT.c.cache_read_ms).label("cache_ms"),
            *(RESULT.c[name] for name in ("job_id", "fetch_ms", "decode_ms", "preprocess_ms", "inference_ms")),
        )
        .where(key.of(RESULT), RESULT.c.run_id == run_id)
        .order_by(SPENT_MS.desc(), RESULT.c.job_id)
        .limit(_MOST)
    )
    return tuple(SlowJob(**row) for row in connection.execute(query).mappings())
