"""Tables and JSON of the comparison of pipelines."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from benchmarks.console import OUT, figures_table
from benchmarks.pipeline.targets import CEILING, EXTRACTION
from reelabel_engine.environment import find_python

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from benchmarks.pipeline.contender import ContenderResult
    from benchmarks.pipeline.targets import Target

DEFINITION = (
    "Jobs per second: all jobs over the seconds from the loaded model, when the first question could be asked, "
    "to the last answer, for every contender after a warm-up of eight other jobs. Extraction alone counts videos."
)
_PACKAGES = ("av", "prefect", "reelabel")
_HEADINGS = ("", "jobs/s", "of the\nceiling", "rounds", "tokens\nper job", "engine\nbusy", "host\nbusy")


def versions() -> dict[str, str]:
    """Return the installed versions of what is measured, in the engine's environment and in this one."""
    return {**find_python().versions, **{package: version(package) for package in _PACKAGES}}


def print_results(title: str, results: Sequence[ContenderResult], targets: Sequence[Target]) -> None:
    """Print a table of contenders, and a line for each target."""
    OUT.print(_table(title, results))
    for target in targets:
        bottleneck = f" - {target.bottleneck}" if target.bottleneck else ""
        OUT.print(
            f"{'met   ' if target.is_met else 'missed'}  {target.name}: {target.ratio:.2f} "
            f"(at least {target.required:.2f}){bottleneck}",
            soft_wrap=True,
            highlight=False,
        )


def print_versions() -> None:
    """Print the versions of what is measured, in one line."""
    OUT.print(", ".join(f"{name} {number}" for name, number in versions().items()), soft_wrap=True)


def results_json(results: Sequence[ContenderResult], targets: Sequence[Target]) -> dict[str, Any]:
    """Return results and targets as JSON values."""
    return {
        "contenders": [
            {
                "contender": result.contender,
                "jobs": result.timings[0].jobs,
                "jobs_per_s": round(result.jobs_per_s, 3),
                "rounds_jobs_per_s": [round(timing.jobs_per_s, 3) for timing in result.timings],
                "prompt_tokens": result.timings[0].prompt_tokens,
                "engine_utilization": result.engine_utilization and round(result.engine_utilization, 3),
                "host_utilization": result.host_utilization and round(result.host_utilization, 3),
                "notes": [timing.note for timing in result.timings if timing.note],
            }
            for result in results
        ],
        "targets": [
            {
                "name": target.name,
                "ratio": round(target.ratio, 3),
                "required": target.required,
                "is_met": target.is_met,
                "bottleneck": target.bottleneck,
            }
            for target in targets
        ],
    }


def _table(title: str, results: Sequence[ContenderResult]) -> Table:
    ceiling = next((result.jobs_per_s for result in results if result.contender == CEILING), None)
    table = figures_table(title, _HEADINGS)
    for result in results:
        rates = [timing.jobs_per_s for timing in result.timings]
        tokens = result.timings[0].prompt_tokens / result.timings[0].jobs
        table.add_row(
            result.contender,
            f"{result.jobs_per_s:,.2f}",
            f"{result.jobs_per_s / ceiling:.2f}" if ceiling and result.contender != EXTRACTION else "",
            f"{min(rates):,.2f}-{max(rates):,.2f}",
            f"{tokens:,.1f}" if tokens else "",
            _percent(result.engine_utilization),
            _percent(result.host_utilization),
        )
    return table


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
