"""The benchmark of scale, and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import AsJson, Bench, Plot, whole_numbers


def scale(
    rows: Annotated[
        str, typer.Option(help="Numbers of jobs, comma-separated; ten million take 10 GB of disk.")
    ] = "100000,1000000",
    *,
    videos: Annotated[
        str | None,
        typer.Option(help="Instead, plan and answer the first number of jobs, on these numbers of videos."),
    ] = None,
    describe: Annotated[
        bool, typer.Option("--describe", help="Instead, measure runs that describe this many videos, one per job.")
    ] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="With --describe: plan alone, without rows in the database.")
    ] = False,
    json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Measure planning, leasing, audit, backfills and result writing by the number of jobs, without videos."""
    from benchmarks.scale import report  # noqa: PLC0415

    counts = whole_numbers(rows, "--rows")
    if describe:
        report.scale_of_descriptions(counts, plan_only=plan_only, as_json=json)
    elif videos:
        report.scale_of_videos(counts[0], whole_numbers(videos, "--videos"), as_json=json)
    else:
        report.scale(counts, as_json=json, plot=plot)


BENCHES = (Bench(scale, "scale --rows 100000,1000000 --plot scale.svg"),)
