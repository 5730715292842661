"""Tables of a run's rows, with what is said below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.cli.console import OUT, cell, print_line
from flows.run.result import cost_lines
from reelabel.text import pluralize

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table
    from sqlalchemy import RowMapping

SHOWN_ROWS = 20
SHOWN_CHUNKS = 200
_IN_FULL = "more; use --format csv for all rows and columns."


def print_outcomes(
    run: RowMapping, table: Table, failures: pl.DataFrame, *, noun: str, counts: tuple[int, int]
) -> None:
    """Print a table of what jobs have, some failures, and the cost of the run; `counts` are of all of both."""
    table.title = cell(f"{run['dataset']}: {pluralize(counts[0], noun)}, {pluralize(counts[1], 'failure')}")
    OUT.print(table)
    if counts[0] > table.row_count:
        print_line(f"... and {counts[0] - table.row_count:,} {_IN_FULL}")
    for row in failures.iter_rows(named=True):
        print_line((row["code"], "red"), f" {row['job_id']}: {row['message']}")
    for name, value in cost_lines(run):
        print_line(f"{name}: {value}")
    if run["state"] not in {"done", "running"} and run["message"]:
        print_line(f"This run is {run['state']}: {run['message']}")


def print_chunks(table: Table, found: pl.DataFrame) -> None:
    """Print a table of chunks, which has the first of those that were found."""
    OUT.print(table)
    if len(found) > table.row_count:
        print_line(f"... and {_IN_FULL}")
