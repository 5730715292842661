"""Exports the rows of ended runs to a lake: each run's once, whatever fails in between."""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import case, exists, func, select, update

from infra.database.connect import database_errors
from reelabel.sources.object_info import redact_uri
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import PLAN, RUN, SPEC
from tasks.results.lake.delta import DeltaTables
from tasks.results.lake.iceberg import IcebergTables
from tasks.results.lake.parquet import ParquetFiles
from tasks.results.lake.stream import CommitConflictError
from tasks.results.read import read_outcomes_of_run

if TYPE_CHECKING:
    from sqlalchemy import Engine, RowMapping

    from infra.settings import ResultsSettings
    from reelabel.options import S3Options

    _Lake: TypeAlias = DeltaTables | IcebergTables | ParquetFiles

_ATTEMPTS = 4  # each may meet the commit of another export
_RUN_COLUMNS = ("run_id", "dataset", "spec_id", "kind", "state", "manifest_uri", "started_at", "ended_at")


def export_ended_runs(engine: Engine, store: S3Options, settings: ResultsSettings, *, dataset: str) -> int:
    """Write the rows of a dataset's ended runs that were not exported yet; return how many were written.

    A run's rows replace those that an earlier attempt has left, and the list of what was written comes last. A run
    that has gone on and ended again meanwhile is written again, since its earlier rows may have replaced newer ones.
    """
    assert settings.export_uri is not None
    objects, target = ObjectStore(store), settings.export_uri.rstrip("/")
    lake: _Lake
    if settings.lake == "delta":
        lake = DeltaTables(store, objects, target)
    elif settings.iceberg_namespace:
        lake = IcebergTables(settings.iceberg_namespace)
    else:
        lake = ParquetFiles(objects, target)
    rows = 0
    while due := _unexported(engine, dataset):
        rows += sum(_export(engine, objects, target, lake, run) for run in due)
    return rows


def _unexported(engine: Engine, dataset: str) -> list[RowMapping]:
    with database_errors(), engine.connect() as connection:
        columns = (*(RUN.c[name] for name in _RUN_COLUMNS), SPEC.c.body.label("spec"))
        is_open = exists().where(PLAN.c.run_id == RUN.c.run_id, PLAN.c.state == "open")  # others may go on with it
        query = select(*columns).join(SPEC, SPEC.c.spec_id == RUN.c.spec_id).order_by(RUN.c.started_at)
        is_due = (RUN.c.dataset == dataset) & RUN.c.exported_at.is_(None) & RUN.c.ended_at.is_not(None) & ~is_open
        return list(connection.execute(query.where(is_due)).mappings())


def _export(engine: Engine, objects: ObjectStore, target: str, lake: _Lake, run: RowMapping) -> int:
    describes, date = "job" in run["spec"], run["started_at"].astimezone(UTC).date()
    table = "descriptions" if describes else "labels"
    for left in reversed(range(_ATTEMPTS)):
        parts = read_outcomes_of_run(engine, run["run_id"], describes=describes)
        try:
            rows, written = lake.write(table, parts, run_id=run["run_id"], dataset=run["dataset"], date=date)
            break
        except CommitConflictError:
            if not left:
                raise
    facts = {**run, "manifest_uri": redact_uri(run["manifest_uri"]), "date": date, "rows": rows, **written}
    objects.replace(f"{target}/runs/{run['run_id']}.json", json.dumps(facts, indent=1, default=str).encode())
    # Null for a run that went on meanwhile, even if another export has marked it: this one has written older rows.
    exported_at = case((RUN.c.ended_at == run["ended_at"], func.now()), else_=None)
    with database_errors(), engine.begin() as connection:
        connection.execute(update(RUN).where(RUN.c.run_id == run["run_id"]).values(exported_at=exported_at))
    return rows
