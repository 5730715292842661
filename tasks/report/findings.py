"""Findings of a report: failures by code, caveats about the labels, and the slowest jobs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from reelabel.coverage import coverage_warnings
from reelabel.text import pluralize
from tasks.database.tables import FAILURE, RESULT
from tasks.report.choose import SPENT_MS
from tasks.results.summary import describe_remade

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Connection, RowMapping

    from tasks.database.scope import Scope


_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures with one code at one stage, with example job ids and messages."""

    code: str
    stage: str
    jobs: int
    examples: tuple[tuple[str, str], ...]


def group_failures(connection: Connection, scope: Scope) -> tuple[FailureGroup, ...]:
    """Group failures, the most frequent code first."""
    same = (FAILURE.c.code, FAILURE.c.stage)
    ranked = (
        select(
            *(FAILURE.c[name] for name in ("code", "stage", "job_id", "message")),
            func.count().over(partition_by=same).label("jobs"),
            func.row_number().over(partition_by=same, order_by=FAILURE.c.job_id).label("rank"),
        )
        .where(scope.matches(FAILURE))
        .subquery()
    )
    order = (ranked.c.jobs.desc(), ranked.c.code, ranked.c.stage, ranked.c.rank)
    rows = connection.execute(select(ranked).where(ranked.c.rank <= _EXAMPLES).order_by(*order)).all()
    groups = ((group, list(found)) for group, found in groupby(rows, attrgetter("code", "stage", "jobs")))
    return tuple(
        FailureGroup(code=code, stage=stage, jobs=jobs, examples=tuple((row.job_id, row.message) for row in found))
        for (code, stage, jobs), found in groups
    )


def find_caveats(connection: Connection, scope: Scope, run: RowMapping) -> tuple[str, ...]:
    """Return what to know before relying on the labels, one sentence each."""
    query = select(
        func.count().filter(RESULT.c.decode_note.contains("cut short")).label("cut_short"),
        func.count().filter(RESULT.c.same_position).label("by_position"),
        func.count().filter(RESULT.c.permutations > 1).label("in_orders"),
    ).where(scope.matches(RESULT))
    counts = connection.execute(query).mappings().one()
    caveats = [f"{line}." for line in coverage_warnings(run["coverage"])]
    if run["videos_remade"]:
        caveats.append(f"In this run, {describe_remade(run['videos_remade'])}.")
    if run["jobs_rejected"]:
        caveats.append(f"Rejected, and not answered: {pluralize(run['jobs_rejected'], 'row')} of the manifest.")
    if counts["cut_short"]:
        caveats.append(f"Based on truncated videos: {pluralize(counts['cut_short'], 'label')}.")
    if counts["by_position"]:
        caveats.append(
            f"In {counts['by_position']:,} of {pluralize(counts['in_orders'], 'job')} the model chose the same "
            "position in every order of the choices: there, position decided, not the choices."
        )
    if run["state"] != "running" and run["message"] and not run["message"].startswith("Reconciled"):
        caveats.append(run["message"])
    return tuple(caveats)


_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowJob:
    """Time spent on one job; that of its video is shared with other jobs about the same video."""

    job_id: str
    spent_ms: float
    fetch_ms: float
    decode_ms: float
    cache_ms: float
    preprocess_ms: float
    inference_ms: float
    embed_ms: float = 0.0


def find_slowest(connection: Connection, scope: Scope, run_id: UUID) -> tuple[SlowJob, ...]:
    """List the slowest jobs of one run, the slowest first."""
    query = (
        select(
            SPENT_MS.label("spent_ms"),
            (RESULT.c.cache_write_ms + RESULT.c.cache_read_ms).label("cache_ms"),
            *(
                RESULT.c[name]
                for name in ("job_id", "fetch_ms", "decode_ms", "embed_ms", "preprocess_ms", "inference_ms")
            ),
        )
        .where(scope.matches(RESULT), RESULT.c.run_id == run_id)
        .order_by(SPENT_MS.desc(), RESULT.c.job_id)
        .limit(_MOST)
    )
    return tuple(SlowJob(**row) for row in connection.execute(query).mappings())
