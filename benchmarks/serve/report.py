"""The table of the benchmark `serve`, and whether it reaches what it should."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.console import OUT, PROGRESS, figures_table, print_json
from benchmarks.media.footage import make_footage
from benchmarks.pipeline.runner import model_folder
from benchmarks.pipeline.workload import WARM_UP_CLIPS
from benchmarks.services import own_services
from flows.cli.context import prefect_ready
from tasks.database.schema import prepare_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.table import Table

    from benchmarks.serve.measure import Measured

_SIDE_PX = 240
# To reach: this share of the flow's rate with so many clients; and tails of at most so many medians.
_SHARE, _AT_CLIENTS, _TAIL = 0.9, 16, 3.0


def serve(counts: Sequence[int], folder: Path, *, requests: int, model: str, warm: bool, as_json: bool) -> int:
    """Measure, and print a table, or JSON; return 1 where a target is missed, else 0."""
    clips = make_footage(folder, count=WARM_UP_CLIPS + requests * len(counts), width_px=_SIDE_PX, height_px=_SIDE_PX)
    with own_services() as settings, prefect_ready(settings), PROGRESS.status("") as status:
        from benchmarks.serve.measure import measure_serve  # noqa: PLC0415 - see prefect_ready

        prepare_database(settings.database)
        measured = measure_serve(
            counts,
            requests=requests,
            warm=warm,
            model=model_folder(model, folder),
            clips=clips,
            settings=settings,
            on_progress=status.update,
        )
    missed = _missed(measured)
    if as_json:
        print_json(asdict(measured) | {"missed": missed})
    else:
        OUT.print(_rates(measured, model=model, warm=warm))
        OUT.print(_shares(measured))
        OUT.print("\n".join(missed) or "All targets are reached.", soft_wrap=True)
    return 1 if missed else 0


def _rates(measured: Measured, *, model: str, warm: bool) -> Table:
    cache = "frames in the cache" if warm else "no frames in the cache"
    title = f"{model}, {cache}; the flow on the same {measured.jobs:,} videos: {measured.flow_per_s:.1f} jobs/s"
    answered = ("clients", "requests", "failed", "wrong", "requests/s", "of the flow")
    latencies = ("P50, ms", "P95, ms", "P99, ms", "P99 / P50")
    table = figures_table(title, (*answered, *latencies, "refused", "in at most, ms"), as_markdown=True)
    for row in measured.rows:
        table.add_row(
            f"{row.clients}",
            *(f"{each:,}" for each in (row.requests, row.failed, row.wrong)),
            f"{row.per_s:.1f}",
            f"{row.per_s / measured.flow_per_s:.2f}",
            *(f"{each:,.0f}" for each in (row.p50_ms, row.p95_ms, row.p99_ms)),
            f"{row.p99_ms / row.p50_ms:.1f}",
            f"{row.refused:,}",
            f"{row.refused_ms:,.0f}" if row.refused else "",
        )
    return table


def _shares(measured: Measured) -> Table:
    names = tuple(measured.rows[0].stages)
    table = figures_table("Share of the latency by stage", ("clients", *names), as_markdown=True)
    for row in measured.rows:
        table.add_row(f"{row.clients}", *(f"{row.stages[name]:.0%}" for name in names))
    return table


def _missed(measured: Measured) -> list[str]:
    """Say which targets were missed."""
    missed = []
    for row in measured.rows:
        if row.failed or row.wrong:
            missed.append(
                f"{row.clients} clients: {row.failed} requests failed, {row.wrong} answers are not the flow's."
            )
        if row.clients <= measured.rated and row.refused:
            missed.append(f"{row.clients} clients: {row.refused} requests refused, of no more than there are places.")
        if row.clients <= measured.rated and row.p99_ms > _TAIL * row.p50_ms:
            missed.append(f"{row.clients} clients: P99 is {row.p99_ms / row.p50_ms:.1f} times P50, at most {_TAIL:g}.")
        if row.clients == _AT_CLIENTS and row.per_s < _SHARE * measured.flow_per_s:
            missed.append(
                f"{row.clients} clients: {row.per_s / measured.flow_per_s:.2f} of the flow, at least {_SHARE}."
            )
    return missed
