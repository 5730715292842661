"""`reelabel bench`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.fuzz import ENOUGH_SHARE, bases_like, run

if TYPE_CHECKING:
    from benchmarks.fuzz import FuzzReport, Outcome

_CONSOLE = Console()


def fuzz(count: int, *, seed: int, only: str, as_json: bool, keep: str | None) -> int:
    """Fuzz the extraction, print the report, and keep the mutants that went wrong.

    Returns:
        Exit code: 0 where every mutant ended as it must, else 1.

    Raises:
        typer.BadParameter: No file begins with `only`.
    """
    bases = bases_like(only)
    if not bases:
        raise typer.BadParameter(
            f"No file of the matrix begins with {only!r}; write for example avi or avi/mpeg4.", param_hint="--only"
        )
    report = run(count, seed, bases=bases)
    if keep:
        _keep(report, Path(keep))
    if as_json:
        print(json.dumps(_facts(report, seed), indent=2))  # noqa: T201 - for programs, not for a terminal's width
    else:
        _print(report, seed)
    return 0 if report.is_sound else 1


def _keep(report: FuzzReport, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for mutant in (outcome.mutant for outcome in report.faults):
        (folder / f"{mutant.seed}-{mutant.number}").write_bytes(mutant.data)


def _facts(report: FuzzReport, seed: int) -> dict[str, Any]:
    return {
        "mutants": len(report.outcomes),
        "seed": seed,
        "verdicts": {verdict.name.lower(): count for verdict, count in report.verdicts.most_common()},
        "codes": dict(report.codes.most_common()),
        "readable_share_with_frames": round(report.share, 4),
        "slowest_s": round(max(outcome.extract_s for outcome in report.outcomes), 3),
        "wall_s": round(report.wall_s, 1),
        "faults": [_describe(outcome) for outcome in report.faults],
    }


def _describe(outcome: Outcome) -> dict[str, Any]:
    mutant = outcome.mutant
    return {
        "number": mutant.number,
        "base": mutant.base.name,
        "steps": mutant.steps,
        "num_frames": mutant.num_frames,
        "verdict": outcome.verdict.value,
        "detail": outcome.detail,
    }


def _print(report: FuzzReport, seed: int) -> None:
    facts = _facts(report, seed)
    table = Table("Verdict", "Mutants", title=f"{facts['mutants']} mutants, seed {seed}", title_justify="left")
    for verdict, count in report.verdicts.most_common():
        table.add_row(verdict.value, f"{count:,}")
    _CONSOLE.print(table)
    _CONSOLE.print(f"Error codes: {facts['codes']}", soft_wrap=True)
    _CONSOLE.print(
        f"{report.share:.1%} of what a linear decode can read gave frames (at least {ENOUGH_SHARE:.0%} must); "
        f"{report.wall_s / len(report.outcomes):.3f} s a mutant, the slowest {facts['slowest_s']} s.",
        soft_wrap=True,
    )
    for fault in facts["faults"]:
        _CONSOLE.print(f"  [red]{fault['number']}[/red] {fault['base']}: {fault['verdict']}", soft_wrap=True)
        _CONSOLE.print(f"      {fault['detail']}", soft_wrap=True, highlight=False, markup=False)
