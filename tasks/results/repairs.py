"""Whether later runs have done the work of one that failed or was lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from infra.database.connect import database_errors
from reelabel.errors import ReelabelError
from tasks.database.scope import Scope
from tasks.database.tables import RUN
from tasks.manifest.table import open_audited
from tasks.results.audit import audit_jobs
from tasks.results.read import count_outcomes

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Engine, Row

    from reelabel.sources.object_store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a `classify` run was to do.

    Attributes:
        manifest_uri: Its manifest, with the date filled in.
        dataset: Its dataset.
        since: When it began.
        spec_id: Its spec; None if it failed before it recorded one.
    """

    manifest_uri: str
    dataset: str
    since: datetime
    spec_id: str | None = None


@dataclass(frozen=True, slots=True)
class Repairs:
    """Finds out which work is done; audits a manifest once after each backfill of it."""

    _audits: dict[tuple[Work, str, datetime], bool] = field(default_factory=dict, init=False)

    def have_done(self, work: Work, engine: Engine, objects: ObjectStore) -> bool:
        """Return whether a later run has finished the manifest, or backfills have left each job with one valid row.

        A manifest that cannot be read is not done.
        """
        later = _later_runs(engine, work)
        if any(run.kind == "classify" and run.state == "done" for run in later):
            return True
        backfills = (run for run in later if run.kind == "backfill" and work.spec_id in {run.spec_id, None})
        return any(self._is_reconciled(work, run, engine, objects) for run in backfills)

    def _is_reconciled(self, work: Work, backfill: Row[Any], engine: Engine, objects: ObjectStore) -> bool:
        key = (work, backfill.spec_id, backfill.ended_at)
        if key not in self._audits:
            self._audits[key] = _is_reconciled(work, backfill, engine, objects)
        return self._audits[key]


def _later_runs(engine: Engine, work: Work) -> list[Row[Any]]:
    """Read the kinds, states and specs of later runs of the manifest that have ended, and when the last of each did."""
    kind, state, spec_id = RUN.c.kind, RUN.c.state, RUN.c.spec_id
    newest = {
        "ended_at": func.coalesce(RUN.c.ended_at, RUN.c.seen_at),
        "jobs": RUN.c.jobs_total - RUN.c.jobs_rejected,
        "rejected": RUN.c.jobs_rejected,
    }
    query = (
        select(kind, state, spec_id, *(func.max(column).label(name) for name, column in newest.items()))
        .where(RUN.c.manifest_uri == work.manifest_uri, RUN.c.dataset == work.dataset)
        .where(RUN.c.started_at > work.since, state != "running")
        .group_by(kind, state, spec_id)
    )
    with database_errors(), engine.connect() as connection:
        return list(connection.execute(query).all())


def _is_reconciled(work: Work, backfill: Row[Any], engine: Engine, objects: ObjectStore) -> bool:
    scope = Scope(dataset=work.dataset, spec_id=backfill.spec_id)
    if sum(count_outcomes(engine, scope)) < backfill.jobs:  # else the manifest needs no reading
        return False
    try:
        with open_audited(work.manifest_uri, objects, keep_going=backfill.rejected > 0) as read:
            return audit_jobs(engine, scope, jobs=read()).is_reconciled
    except ReelabelError:
        return False
