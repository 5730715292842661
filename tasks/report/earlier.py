"""Comparison of a run with earlier runs of its manifest: key figures, and labels that differ under another spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from tasks.database.scope import Scope
from tasks.database.tables import RESULT, RUN, SPEC
from tasks.results.runs import run_state

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection, RowMapping

_MAX_RUNS = 6
_MAX_MOVES = 8
_MAX_EXAMPLES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Key figures of one run."""

    run_id: UUID
    kind: str
    state: str
    spec_id: str
    started_at: datetime
    ended: int
    failed: int
    jobs_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChange:
    """Number of jobs whose label changed from `before` to `after`."""

    before: str
    after: str
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Labels that differ from those of the latest earlier run with another spec.

    Attributes:
        run: The earlier run.
        differences: Fields of the spec that differ: name, earlier value, current value.
        compared: Number of jobs with the same question that have a label under both specs.
        changed: Number of those whose label differs.
        gained: Number of those that were wrong and are now correct, among jobs with a known answer.
        lost: Number of those that were correct and are now wrong.
        label_changes: The most frequent changes of a label.
        job_ids: Some of the changed jobs with their earlier label, the highest margin first.
    """

    run: RunFigures
    differences: tuple[tuple[str, Any, Any], ...]
    compared: int
    changed: int
    gained: int
    lost: int
    label_changes: tuple[LabelChange, ...]
    job_ids: tuple[tuple[str, str], ...]


def earlier_runs(connection: Connection, run: RowMapping) -> tuple[RunFigures, ...]:
    """Read this run and the latest earlier ones with the same manifest and dataset, newest first.

    The latest run with another spec is always included.
    """
    query = (
        select(
            *(RUN.c[name] for name in ("run_id", "kind", "spec_id", "started_at", "jobs_per_s")),
            run_state(connection),
            (RUN.c.jobs_labelled + RUN.c.jobs_failed).label("ended"),
            RUN.c.jobs_failed.label("failed"),
        )
        .where(
            RUN.c.manifest_uri == run["manifest_uri"],
            RUN.c.dataset == run["dataset"],
            RUN.c.started_at <= run["started_at"],
        )
        .order_by(RUN.c.started_at.desc())
    )
    newest = connection.execute(query.limit(_MAX_RUNS)).mappings().all()
    other = connection.execute(query.where(RUN.c.spec_id != run["spec_id"]).limit(1)).mappings().all()
    found = {row["run_id"]: RunFigures(**row) for row in (*newest, *other)}
    return tuple(found.values())


def count_other_ways(connection: Connection, run: RowMapping) -> int:
    """Count the other specs and datasets under which the run's manifest was answered, at any time."""
    way = select(RUN.c.dataset, RUN.c.spec_id).where(RUN.c.manifest_uri == run["manifest_uri"]).distinct().subquery()
    is_other = (way.c.dataset != run["dataset"]) | (way.c.spec_id != run["spec_id"])
    return connection.execute(select(func.count()).select_from(way).where(is_other)).scalar_one()


def find_changes(connection: Connection, scope: Scope, runs: tuple[RunFigures, ...]) -> Changes | None:
    """Compare with the latest earlier run with another spec; return None if there is none.

    Runs with the same spec share one label per job, so there is nothing to compare.
    """
    other = next((run for run in runs if run.spec_id != scope.spec_id), None)
    if other is None:
        return None
    then, now = RESULT.alias("before"), RESULT.alias("after")
    both = (then.c.job_id == now.c.job_id) & (then.c.job_digest == now.c.job_digest)
    mine, theirs = scope.matches(now), Scope(dataset=scope.dataset, spec_id=other.spec_id).matches(then)
    is_changed = now.c.label != then.c.label
    counts = select(
        func.count().label("compared"),
        func.count().filter(is_changed).label("changed"),
        func.count().filter(is_changed, now.c.label == now.c.answer).label("gained"),
        func.count().filter(is_changed, then.c.label == now.c.answer).label("lost"),
    )
    jobs = func.count().label("jobs")
    moves = select(then.c.label.label("before"), now.c.label.label("after"), jobs).group_by(then.c.label, now.c.label)
    some = select(now.c.job_id, then.c.label).order_by(now.c.margin.desc(), now.c.job_id).limit(_MAX_EXAMPLES)
    joined = now.join(then, both)
    counts = counts.select_from(joined).where(mine, theirs)
    moves = moves.select_from(joined).where(mine, theirs)
    some = some.select_from(joined).where(mine, theirs)
    order = (jobs.desc(), then.c.label, now.c.label)
    moved = connection.execute(moves.where(is_changed).order_by(*order).limit(_MAX_MOVES)).mappings()
    return Changes(
        run=other,
        differences=_differences(connection, other.spec_id, scope.spec_id),
        label_changes=tuple(LabelChange(**row) for row in moved),
        job_ids=tuple((row.job_id, row.label) for row in connection.execute(some.where(is_changed))),
        **connection.execute(counts).mappings().one(),
    )


def _differences(connection: Connection, before: str, after: str) -> tuple[tuple[str, Any, Any], ...]:
    query = select(SPEC.c.spec_id, SPEC.c.body).where(SPEC.c.spec_id.in_([before, after]))
    bodies = {row.spec_id: _flat(row.body) for row in connection.execute(query)}
    one, other = bodies.get(before, {}), bodies.get(after, {})
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    return tuple((name, one.get(name), other.get(name)) for name in names)


def _flat(body: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in body.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
