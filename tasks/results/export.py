"""Rows of ended runs as Parquet files beside each other, for a lake: each run's once, whatever fails between."""

from __future__ import annotations

import io
import json
from datetime import UTC
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl
from sqlalchemy import exists, func, select, update

from infra.database.connect import database_errors
from reelabel.sources.object_info import redact_uri
from tasks.database.tables import PLAN, RUN, SPEC
from tasks.results.read import read_outcomes_of_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine, RowMapping

    from reelabel.sources.object_store import ObjectStore

_FILE_BYTES = 256 * 1024**2  # in memory
_RUN_COLUMNS = ("run_id", "dataset", "spec_id", "kind", "state", "manifest_uri", "started_at", "ended_at")


def export_ended_runs(engine: Engine, objects: ObjectStore, target: str, *, dataset: str) -> int:
    """Write the rows of a dataset's ended runs that were not exported yet; return the number of rows.

    A run's files are named by its id, and its list of files is written last, so that a second attempt replaces what
    the first one has left.

    Args:
        engine: The database.
        objects: Writes files.
        target: A folder, local or `s3://`.
        dataset: The dataset.
    """
    return sum(_export(engine, objects, target.rstrip("/"), run) for run in _unexported(engine, dataset))


def _unexported(engine: Engine, dataset: str) -> list[RowMapping]:
    with database_errors(), engine.connect() as connection:
        columns = (*(RUN.c[name] for name in _RUN_COLUMNS), SPEC.c.body.label("spec"))
        is_open = exists().where(PLAN.c.run_id == RUN.c.run_id, PLAN.c.state == "open")  # others may go on with it
        query = select(*columns).join(SPEC, SPEC.c.spec_id == RUN.c.spec_id).order_by(RUN.c.started_at)
        is_due = (RUN.c.dataset == dataset) & RUN.c.exported_at.is_(None) & (RUN.c.state != "running") & ~is_open
        return list(connection.execute(query.where(is_due)).mappings())


def _export(engine: Engine, objects: ObjectStore, target: str, run: RowMapping) -> int:
    run_id, describes = run["run_id"], "job" in run["spec"]
    date = run["started_at"].astimezone(UTC).date()
    folder = f"{target}/{'descriptions' if describes else 'labels'}/{_partition(target, run['dataset'])}/date={date}"
    files: dict[str, dict[str, Any]] = {}
    for number, rows in enumerate(_in_files(read_outcomes_of_run(engine, run_id, describes=describes))):
        data = io.BytesIO()
        rows.drop("dataset").write_parquet(data, compression="zstd")
        name = f"{run_id}-{number:04}.parquet"
        objects.replace(f"{folder}/{name}", data.getvalue())
        files[name] = {"uri": f"{folder}/{name}", "rows": len(rows), "bytes": len(data.getvalue())}
    for found in list(objects.list(folder)):
        name = found.uri.rpartition("/")[2]
        if name.startswith(f"{run_id}-") and name not in files:
            objects.remove(found.uri)  # of an attempt that had more rows
    facts = {**run, "manifest_uri": redact_uri(run["manifest_uri"]), "date": date, "files": [*files.values()]}
    objects.replace(f"{target}/runs/{run_id}.json", json.dumps(facts, indent=1, default=str).encode())
    is_same = (RUN.c.run_id == run_id) & (RUN.c.ended_at == run["ended_at"])  # not one that went on meanwhile
    with database_errors(), engine.begin() as connection:
        connection.execute(update(RUN).where(is_same).values(exported_at=func.now()))
    return sum(each["rows"] for each in files.values())


def _partition(target: str, dataset: str) -> str:
    """Return a folder as Hive names it, escaped, and once more in a URI that is itself unescaped."""
    escaped = quote(dataset, safe="")
    return f"dataset={quote(escaped) if target.startswith('file:') else escaped}"


def _in_files(parts: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    held: list[pl.DataFrame] = []
    for part in parts:
        held.append(part)
        if sum(each.estimated_size() for each in held) >= _FILE_BYTES:
            yield pl.concat(held)
            held = []
    if sum(map(len, held)):
        yield pl.concat(held)
