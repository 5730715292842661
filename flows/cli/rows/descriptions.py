"""`reelabel results` of a run that describes videos, and its summary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.table import Table

from flows.cli.console import cell
from flows.cli.rows.formats import print_rows
from flows.cli.rows.tables import SHOWN_CHUNKS, SHOWN_ROWS, print_chunks, print_outcomes
from tasks.database.scope import Scope
from tasks.results.read import (
    count_outcomes,
    read_description_chunks,
    read_descriptions,
    read_failures,
    read_outcomes,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine, RowMapping

_SHOWN_TAGS = 3


def print_descriptions(engine: Engine, run: RowMapping, *, form: str, raw: bool, chunks: bool) -> None:
    """Print the current descriptions and failures of a run's dataset and spec, or the chunks of its videos."""
    scope = Scope.of(run)
    if form != "table":
        rows = read_description_chunks(engine, scope) if chunks else read_outcomes(engine, scope, describes=True)
        print_rows(rows, form=form, raw=raw)
    elif chunks:
        _print_chunks(pl.concat(read_description_chunks(engine, scope, limit=SHOWN_CHUNKS + 1)))
    else:
        _print_videos(engine, run, scope)


def _print_videos(engine: Engine, run: RowMapping, scope: Scope) -> None:
    described = read_descriptions(engine, scope, limit=SHOWN_ROWS)
    failures = read_failures(engine, scope, limit=SHOWN_ROWS)
    counts = count_outcomes(engine, scope)
    table = Table()
    for name in ("job_id", "seconds", "tags", "caption", "scenes"):
        table.add_column(name, overflow="fold")
    for row in described.iter_rows(named=True):
        scenes = str(len(json.loads(row["scenes"])))
        table.add_row(*map(cell, (row["job_id"], f"{row['duration_s']:.1f}", _tags(row), _caption(row), scenes)))
    print_outcomes(run, table, failures, noun="description", counts=counts)


def _print_chunks(found: pl.DataFrame) -> None:
    table = Table("job_id", "from", "to", "tags", "caption", "changes")
    for row in found[:SHOWN_CHUNKS].iter_rows(named=True):
        changes = ", ".join(f"{each['time_s']:.2f} s ({each['kind']})" for each in json.loads(row["changes"]))
        place = f"{row['start_s']:g} s", f"{row['end_s']:g} s"
        table.add_row(*map(cell, (row["job_id"], *place, _tags(row), _caption(row), changes)))
    print_chunks(table, found)


def _tags(row: dict[str, Any]) -> str:
    return ", ".join(f"{tag['text']} {tag['score']:.3f}" for tag in json.loads(row["tags"])[:_SHOWN_TAGS])


def _caption(row: dict[str, Any]) -> str:
    return "" if row["caption"] is None else f"{row['caption']} {row['caption_score']:.3f}"
