"""`reelabel results` of a run that describes videos, and its summary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.table import Table

from flows.cli.console import OUT, cell, print_line
from flows.cli.rows.formats import print_rows
from flows.run.result import cost_lines
from reelabel.wording import pluralize
from tasks.results.read import (
    count_outcomes,
    read_description_chunks,
    read_descriptions,
    read_failures,
    read_outcomes,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine, RowMapping

_SHOWN_ROWS = 20
_SHOWN_CHUNKS = 200
_SHOWN_TAGS = 3


def print_descriptions(engine: Engine, run: RowMapping, *, form: str, raw: bool, chunks: bool) -> None:
    """Print the current descriptions and failures of a run's dataset and spec, or the chunks of its videos."""
    key = {"dataset": run["dataset"], "spec_id": run["spec_id"]}
    if form != "table":
        rows = read_description_chunks(engine, **key) if chunks else read_outcomes(engine, **key, describes=True)
        print_rows(rows, form=form, raw=raw)
    elif chunks:
        _print_chunks(pl.concat(read_description_chunks(engine, **key, limit=_SHOWN_CHUNKS + 1)))
    else:
        _print_videos(engine, run, key)


def _print_videos(engine: Engine, run: RowMapping, key: dict[str, Any]) -> None:
    described = read_descriptions(engine, **key, limit=_SHOWN_ROWS)
    failures = read_failures(engine, **key, limit=_SHOWN_ROWS)
    count, failed = count_outcomes(engine, **key)
    title = f"{run['dataset']}: {pluralize(count, 'description')}, {pluralize(failed, 'failure')}"
    table = Table(title=cell(title))
    for name in ("job_id", "seconds", "tags", "caption", "scenes"):
        table.add_column(name, overflow="fold")
    for row in described.iter_rows(named=True):
        scenes = str(len(json.loads(row["scenes"])))
        table.add_row(*map(cell, (row["job_id"], f"{row['duration_s']:.1f}", _tags(row), _caption(row), scenes)))
    OUT.print(table)
    if count > len(described):
        print_line(f"... and {count - len(described):,} more; use --format csv for all rows and columns.")
    for row in failures.iter_rows(named=True):
        print_line((row["code"], "red"), f" {row['job_id']}: {row['message']}")
    for name, value in cost_lines(run):
        print_line(f"{name}: {value}")
    if run["state"] not in {"done", "running"} and run["message"]:
        print_line(f"This run is {run['state']}: {run['message']}")


def _print_chunks(found: pl.DataFrame) -> None:
    table = Table("job_id", "from", "to", "tags", "caption", "changes")
    for row in found[:_SHOWN_CHUNKS].iter_rows(named=True):
        changes = ", ".join(f"{at_s:.2f} s" for at_s in row["changes"])
        place = f"{row['start_s']:g} s", f"{row['end_s']:g} s"
        table.add_row(*map(cell, (row["job_id"], *place, _tags(row), _caption(row), changes)))
    OUT.print(table)
    if len(found) > _SHOWN_CHUNKS:
        print_line("... and more; use --format csv for all rows and columns.")


def _tags(row: dict[str, Any]) -> str:
    return ", ".join(f"{tag['text']} {tag['score']:.3f}" for tag in json.loads(row["tags"])[:_SHOWN_TAGS])


def _caption(row: dict[str, Any]) -> str:
    return "" if row["caption"] is None else f"{row['caption']} {row['caption_score']:.3f}"
