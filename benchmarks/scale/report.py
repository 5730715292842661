"""Table, JSON and diagram of the benchmark of scale."""

from __future__ import annotations

from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.console import OUT, PROGRESS, figures_table, print_json
from benchmarks.plot import Panel, draw
from benchmarks.scale.describing import measure_descriptions, measure_planning
from benchmarks.scale.measure import measure_scale, measure_videos
from flows.cli.context import running_services
from infra.embedded import ServiceName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.table import Table

    from benchmarks.scale.measure import ScaleRow

_MIB = 1024**2


def _count(attribute: str) -> Callable[[object], str]:
    return lambda row: f"{attrgetter(attribute)(row):,.0f}"


def _seconds(attribute: str) -> Callable[[object], str]:
    return lambda row: f"{attrgetter(attribute)(row):,.1f}"


def _mib(attribute: str) -> Callable[[object], str]:
    return lambda row: f"{attrgetter(attribute)(row) / _MIB:,.0f}"


def _step(title: str, name: str) -> dict[str, Callable[[object], str]]:
    return {f"{title}, s": _seconds(f"{name}_s"), f"{title}, peak MiB": _mib(f"{name}_peak_bytes")}


_BACKFILLS = _step("pending of a tenth", "pending") | _step("backfill of a tenth", "backfill")
_BY_JOBS = (
    _step("plan", "plan")
    | {"shards": _count("shards"), "shards leased per second": _count("leased_per_s")}
    | _step("audit", "audit")
    | _BACKFILLS
    | {
        "results written per second": _count("written_per_s"),
        "descriptions written per second": _count("described_per_s"),
    }
)
_DRAWN = {"plan": "plan", "audit": "audit", "pending of a tenth": "pending", "backfill of a tenth": "backfill"}
_BY_VIDEOS = {"shards": _count("shards")} | _step("plan", "plan") | _step("answer", "answer")
_BY_PLANS = _step("plan", "plan") | {
    "shards": _count("shards"),
    "files of the plan": _count("plan_files"),
    "their MiB": _mib("plan_file_bytes"),
}
_BY_DESCRIPTIONS = (
    _BY_PLANS
    | {"rows in Postgres, MiB": _mib("table_bytes")}
    | _step("audit", "audit")
    | _BACKFILLS
    | _step("catalogue of a search", "catalogue")
)


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
        OUT.print(_table("By the number of jobs in the manifest", rows, "rows", _BY_JOBS))


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
    OUT.print(_table(f"{count:,} jobs, by the number of videos", rows, "videos", _BY_VIDEOS))


def scale_of_descriptions(counts: Sequence[int], *, plan_only: bool, as_json: bool) -> None:
    """Measure each number of videos to describe, or only how they are planned; print a table or JSON."""
    measure = measure_planning if plan_only else measure_descriptions
    with running_services(ServiceName.POSTGRES, own=True) as settings, PROGRESS.status("") as status:
        rows = []
        for count in counts:

            def show(step: str, videos: int = count) -> None:
                status.update(f"{videos:,} videos: {step}")

            rows.append(measure(count, settings.database, on_progress=show))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    cells = _BY_PLANS if plan_only else _BY_DESCRIPTIONS
    OUT.print(_table("By the number of videos to describe", rows, "videos", cells))


def _table(title: str, rows: Sequence[Any], head: str, cells: Mapping[str, Callable[[object], str]]) -> Table:
    table = figures_table(title, ("", *(f"{getattr(row, head):,}" for row in rows)))
    for name, cell in cells.items():
        table.add_row(name, *map(cell, rows))
    return table


def _times(rows: Sequence[ScaleRow]) -> Panel:
    return Panel("Seconds", {title: _line(rows, f"{name}_s", 1) for title, name in _DRAWN.items()}, "jobs")


def _memory(rows: Sequence[ScaleRow]) -> Panel:
    lines = {title: _line(rows, f"{name}_peak_bytes", _MIB) for title, name in _DRAWN.items()}
    return Panel("Peak memory, MiB", lines, "jobs")


def _line(rows: Sequence[ScaleRow], attribute: str, unit: int) -> list[tuple[float, float]]:
    return [(row.rows, getattr(row, attribute) / unit) for row in rows]
