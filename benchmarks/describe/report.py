"""Tables and JSON of the benchmarks of descriptions."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.console import OUT, PROGRESS, print_json
from benchmarks.services import own_services
from flows.cli.context import prefect_ready
from tasks.database.schema import prepare_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.describe.retag import RetagRow


def retag(counts: Sequence[int], folder: Path, *, seconds: float, as_json: bool) -> None:
    """Measure each number of videos; print a table for each, or JSON."""
    with own_services() as settings, prefect_ready(settings), PROGRESS.status("") as status:
        from benchmarks.describe.retag import measure_retag  # noqa: PLC0415 - see prefect_ready

        prepare_database(settings.database)
        measured = []
        for count in counts:

            def show(step: str, count: int = count) -> None:
                status.update(f"{count:,} videos: {step}")

            measured.append(measure_retag(count, seconds=seconds, settings=settings, folder=folder, on_progress=show))
    if as_json:
        print_json([asdict(row) for rows in measured for row in rows])
        return
    for rows in measured:
        OUT.print(_retag_table(rows, seconds=seconds))


def _retag_table(rows: Sequence[RetagRow], *, seconds: float) -> Table:
    title = f"{rows[0].videos:,} embedded videos of {seconds:g} s, described by two banks of 20 tags, one after another"
    table = Table("", title=title, title_justify="left")
    for row in rows:
        table.add_column(f"by the {row.name}", justify="right")
    table.add_row("seconds", *(f"{row.seconds:,.1f}" for row in rows))
    table.add_row("without the towers' start", *(f"{row.describing_s:,.1f}" for row in rows))
    table.add_row("videos/s", *(f"{row.videos_per_s:,.0f}" for row in rows))
    table.add_row("videos/s without the towers' start", *(f"{row.videos / row.describing_s:,.0f}" for row in rows))
    table.add_row("CPU of the flow, s", *(f"{row.cpu_s:,.1f}" for row in rows))
    table.add_row("frames decoded, embedded", *(f"{row.decoded}, {row.embedded}" for row in rows))
    table.add_row("rows of chunks", *(f"{row.chunk_rows:,}" for row in rows), end_section=True)
    for part in dict.fromkeys(part for row in rows for part in row.wall_s):
        shares = (f"{row.wall_s.get(part, 0.0) / row.seconds:.0%}" for row in rows)
        table.add_row(f"wall clock: {part}", *shares)
    table.add_section()
    for part in dict.fromkeys(part for row in rows for part, spent_s in row.stage_s.items() if spent_s):
        per_video = (f"{row.stage_s.get(part, 0.0) / row.videos * 1e3:.2f} ms" for row in rows)
        table.add_row(f"a video, all threads: {part}", *per_video)
    return table
