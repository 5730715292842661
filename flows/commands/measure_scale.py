"""`reelabel bench scale`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.plot import Panel, draw
from benchmarks.scale.measure import measure_scale
from flows.commands.opened import services
from infra.embedded import ServiceName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.scale.measure import ScaleRow

_CONSOLE = Console()
_MIB = 1024**2


def scale(counts: Sequence[int], *, as_json: bool, plot: str | None) -> None:
    """Measure what so many jobs take, and print a table, or JSON; draw it if asked to."""
    with services(ServiceName.POSTGRES, own=True) as settings, Console(stderr=True).status("") as status:
        rows = [
            measure_scale(count, settings.database, say=lambda doing, of=count: status.update(f"{of:,} jobs: {doing}"))  # type: ignore[misc]
            for count in counts
        ]
    if plot:
        Path(plot).write_text(draw([_times(rows), _memory(rows)]))
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))  # noqa: T201 - for programs
    else:
        _CONSOLE.print(_table(rows))


def _table(rows: Sequence[ScaleRow]) -> Table:
    table = Table("", title="By the number of jobs in the manifest", title_justify="left")
    for row in rows:
        table.add_column(f"{row.rows:,}", justify="right")
    for name, values in (
        ("plan, s", [f"{row.plan_s:,.1f}" for row in rows]),
        ("plan, peak MiB", [f"{row.plan_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("shards", [f"{row.shards:,}" for row in rows]),
        ("shards handed out a second", [f"{row.claimed_per_s:,.0f}" for row in rows]),
        ("audit, s", [f"{row.audit_s:,.1f}" for row in rows]),
        ("audit, peak MiB", [f"{row.audit_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("pending of a tenth, s", [f"{row.pending_s:,.1f}" for row in rows]),
        ("pending of a tenth, peak MiB", [f"{row.pending_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("backfill of a tenth, s", [f"{row.backfill_s:,.1f}" for row in rows]),
        ("backfill of a tenth, peak MiB", [f"{row.backfill_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("results written a second", [f"{row.written_per_s:,.0f}" for row in rows]),
    ):
        table.add_row(name, *values)
    return table


def _times(rows: Sequence[ScaleRow]) -> Panel:
    lines = {
        "plan": [(row.rows, row.plan_s) for row in rows],
        "audit": [(row.rows, row.audit_s) for row in rows],
        "pending of a tenth": [(row.rows, row.pending_s) for row in rows],
        "backfill of a tenth": [(row.rows, row.backfill_s) for row in rows],
    }
    return Panel("Seconds", lines, "jobs")


def _memory(rows: Sequence[ScaleRow]) -> Panel:
    lines = {
        "plan": [(row.rows, row.plan_peak_bytes / _MIB) for row in rows],
        "audit": [(row.rows, row.audit_peak_bytes / _MIB) for row in rows],
        "pending of a tenth": [(row.rows, row.pending_peak_bytes / _MIB) for row in rows],
        "backfill of a tenth": [(row.rows, row.backfill_peak_bytes / _MIB) for row in rows],
    }
    return Panel("Peak memory, MiB", lines, "jobs")
