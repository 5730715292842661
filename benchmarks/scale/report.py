"""Table, JSON and diagram of the benchmark of scale."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.console import OUT, PROGRESS, print_json
from benchmarks.plot import Panel, draw
from benchmarks.scale.describing import measure_descriptions
from benchmarks.scale.measure import measure_scale, measure_videos
from flows.cli.context import running_services
from infra.embedded import ServiceName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.scale.measure import ScaleRow

_MIB = 1024**2


def scale(counts: Sequence[int], *, as_json: bool, plot: str | None) -> None:
    """Measure each number of jobs; print a table or JSON, and draw a diagram if asked to."""
    with running_services(ServiceName.POSTGRES, own=True) as settings, PROGRESS.status("") as status:
        rows = []
        for count in counts:

            def show(step: str, jobs: int = count) -> None:
                status.update(f"{jobs:,} jobs: {step}")

            rows.append(measure_scale(count, settings.database, on_progress=show))
    if plot:
        Path(plot).write_text(draw([_times(rows), _memory(rows)]))
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        OUT.print(_table(rows))


def scale_of_videos(count: int, videos: Sequence[int], *, as_json: bool) -> None:
    """Plan and answer so many jobs on each number of videos; print a table or JSON."""
    with running_services(ServiceName.POSTGRES, own=True) as settings, PROGRESS.status("") as status:
        rows = []
        for number in videos:

            def show(step: str, number: int = number) -> None:
                status.update(f"{count:,} jobs on {number:,} videos: {step}")

            rows.append(measure_videos(count, videos=number, settings=settings.database, on_progress=show))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    table = Table("", title=f"{count:,} jobs, by the number of videos", title_justify="left")
    for row in rows:
        table.add_column(f"{row.videos:,}", justify="right")
    for name, values in (
        ("shards", [f"{row.shards:,}" for row in rows]),
        ("plan, s", [f"{row.plan_s:,.1f}" for row in rows]),
        ("plan, peak MiB", [f"{row.plan_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("answer, s", [f"{row.answer_s:,.1f}" for row in rows]),
        ("answer, peak MiB", [f"{row.answer_peak_bytes / _MIB:,.0f}" for row in rows]),
    ):
        table.add_row(name, *values)
    OUT.print(table)


def scale_of_descriptions(counts: Sequence[int], *, as_json: bool) -> None:
    """Measure each number of videos to describe; print a table or JSON."""
    with running_services(ServiceName.POSTGRES, own=True) as settings, PROGRESS.status("") as status:
        rows = []
        for count in counts:

            def show(step: str, videos: int = count) -> None:
                status.update(f"{videos:,} videos: {step}")

            rows.append(measure_descriptions(count, settings.database, on_progress=show))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    table = Table("", title="By the number of videos to describe", title_justify="left")
    for row in rows:
        table.add_column(f"{row.videos:,}", justify="right")
    for name, values in (
        ("plan, s", [f"{row.plan_s:,.1f}" for row in rows]),
        ("plan, peak MiB", [f"{row.plan_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("shards", [f"{row.shards:,}" for row in rows]),
        ("files of the plan", [f"{row.plan_files:,}" for row in rows]),
        ("their MiB", [f"{row.plan_file_bytes / _MIB:,.0f}" for row in rows]),
        ("rows in Postgres, MiB", [f"{row.table_bytes / _MIB:,.0f}" for row in rows]),
        ("audit, s", [f"{row.audit_s:,.1f}" for row in rows]),
        ("audit, peak MiB", [f"{row.audit_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("pending of a tenth, s", [f"{row.pending_s:,.1f}" for row in rows]),
        ("pending of a tenth, peak MiB", [f"{row.pending_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("backfill of a tenth, s", [f"{row.backfill_s:,.1f}" for row in rows]),
        ("backfill of a tenth, peak MiB", [f"{row.backfill_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("keys for the search index, s", [f"{row.keys_s:,.1f}" for row in rows]),
        ("keys for the search index, peak MiB", [f"{row.keys_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("catalogue of a search, s", [f"{row.catalogue_s:,.1f}" for row in rows]),
        ("catalogue of a search, peak MiB", [f"{row.catalogue_peak_bytes / _MIB:,.0f}" for row in rows]),
    ):
        table.add_row(name, *values)
    OUT.print(table)


def _table(rows: Sequence[ScaleRow]) -> Table:
    table = Table("", title="By the number of jobs in the manifest", title_justify="left")
    for row in rows:
        table.add_column(f"{row.rows:,}", justify="right")
    for name, values in (
        ("plan, s", [f"{row.plan_s:,.1f}" for row in rows]),
        ("plan, peak MiB", [f"{row.plan_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("shards", [f"{row.shards:,}" for row in rows]),
        ("shards leased per second", [f"{row.leased_per_s:,.0f}" for row in rows]),
        ("audit, s", [f"{row.audit_s:,.1f}" for row in rows]),
        ("audit, peak MiB", [f"{row.audit_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("pending of a tenth, s", [f"{row.pending_s:,.1f}" for row in rows]),
        ("pending of a tenth, peak MiB", [f"{row.pending_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("backfill of a tenth, s", [f"{row.backfill_s:,.1f}" for row in rows]),
        ("backfill of a tenth, peak MiB", [f"{row.backfill_peak_bytes / _MIB:,.0f}" for row in rows]),
        ("results written per second", [f"{row.written_per_s:,.0f}" for row in rows]),
        ("descriptions written per second", [f"{row.described_per_s:,.0f}" for row in rows]),
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
