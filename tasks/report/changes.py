"""Compares a run with earlier runs of its manifest: specs and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from tasks.database.scope import Scope
from tasks.database.tables import RESULT, RUN, SPEC
from tasks.results.runs import run_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, RowMapping

_MAX_RUNS = 6
_MAX_MOVES = 8
_MAX_CHANGED = 60
# Runs that describe the manifest's videos have no labels to compare.
_ASKS = RUN.c.spec_id.not_in(select(SPEC.c.spec_id).where(SPEC.c.body.has_key("job")))


def earlier_runs(connection: Connection, run: RowMapping) -> list[RowMapping]:
    """Read this run and the latest earlier ones that asked about the same manifest and dataset, newest first.

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
            _ASKS,
        )
        .order_by(RUN.c.started_at.desc())
    )
    newest = connection.execute(query.limit(_MAX_RUNS)).mappings().all()
    other = connection.execute(query.where(RUN.c.spec_id != run["spec_id"]).limit(1)).mappings().all()
    return list({row["run_id"]: row for row in (*newest, *other)}.values())


def count_other_ways(connection: Connection, run: RowMapping) -> int:
    """Count the other specs and datasets under which the run's manifest was answered, at any time."""
    asked = (RUN.c.manifest_uri == run["manifest_uri"], _ASKS)
    way = select(RUN.c.dataset, RUN.c.spec_id).where(*asked).distinct().subquery()
    is_other = (way.c.dataset != run["dataset"]) | (way.c.spec_id != run["spec_id"])
    return connection.execute(select(func.count()).select_from(way).where(is_other)).scalar_one()


def label_changes(connection: Connection, scope: Scope, runs: Sequence[RowMapping]) -> dict[str, Any] | None:
    """Compare with the latest earlier run with another spec; return None if there is none.

    Runs with the same spec share one label per job, so they cannot be compared.

    Return `run`, the earlier one; `differences` between the specs; how many jobs with the same question were
    `compared`, `changed`, and, if their answer is known, `gained` and `lost`; the most frequent `label_changes`; and
    `job_ids` of some changed jobs with their earlier label, the highest margin first.
    """
    other = next((run for run in runs if run["spec_id"] != scope.spec_id), None)
    if other is None:
        return None
    then, now = RESULT.alias("before"), RESULT.alias("after")
    both = (then.c.job_id == now.c.job_id) & (then.c.job_digest == now.c.job_digest)
    mine = scope.matches(now) & now.c.label.is_not(None)
    theirs = Scope(dataset=scope.dataset, spec_id=other["spec_id"]).matches(then)
    is_changed = now.c.label != then.c.label
    counts = select(
        func.count().label("compared"),
        func.count().filter(is_changed).label("changed"),
        func.count().filter(is_changed, now.c.label == now.c.answer).label("gained"),
        func.count().filter(is_changed, then.c.label == now.c.answer).label("lost"),
    )
    jobs = func.count().label("jobs")
    moves = select(then.c.label.label("before"), now.c.label.label("after"), jobs).group_by(then.c.label, now.c.label)
    some = select(now.c.job_id, then.c.label).order_by(now.c.margin.desc(), now.c.job_id).limit(_MAX_CHANGED)
    joined = now.join(then, both)
    counts = counts.select_from(joined).where(mine, theirs)
    moves = moves.select_from(joined).where(mine, theirs)
    some = some.select_from(joined).where(mine, theirs)
    order = (jobs.desc(), then.c.label, now.c.label)
    return {
        "run": other,
        "differences": _differences(connection, other["spec_id"], scope.spec_id),
        "label_changes": connection.execute(moves.where(is_changed).order_by(*order).limit(_MAX_MOVES))
        .mappings()
        .all(),
        "job_ids": [(row.job_id, row.label) for row in connection.execute(some.where(is_changed))],
        **connection.execute(counts).mappings().one(),
    }


def _differences(connection: Connection, before: str, after: str) -> list[tuple[str, Any, Any]]:
    """Return the fields of two specs that differ: name, earlier value, current value."""
    query = select(SPEC.c.spec_id, SPEC.c.body).where(SPEC.c.spec_id.in_([before, after]))
    bodies = {row.spec_id: _flat(row.body) for row in connection.execute(query)}
    one, other = bodies.get(before, {}), bodies.get(after, {})
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    return [(name, one.get(name), other.get(name)) for name in names]


def _flat(body: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in body.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
