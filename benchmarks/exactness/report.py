"""Reports of conformance and fuzzing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from benchmarks.console import OUT, PROGRESS, print_json
from benchmarks.exactness.against_vllm import EQUAL, compare_kinds, kinds, kinds_of, unexplained
from benchmarks.exactness.conformance import check_cells
from benchmarks.exactness.document import conformance_document
from benchmarks.exactness.fuzz import BASES, REQUIRED_SHARE, fuzz_extraction
from benchmarks.media.matrix import cells_like, matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.exactness.fuzz import FuzzReport, MutantResult
    from benchmarks.media.matrix import Cell


def conformance(*, only: str, write: str | None) -> int:
    """Check every file of the matrix, print how many are exact, and write the document if asked to.

    Returns:
        Exit code: 0 where every file is exact, else 1.

    Raises:
        typer.BadParameter: No file begins with `only`, or the document would hold only some files.
    """
    if only and write:
        raise typer.BadParameter("The document covers every file; leave out --only.", param_hint="--write")
    with PROGRESS.status("Making and checking files"):
        results = check_cells(_cells(only) if only else matrix())
    for cell, result in results.items():
        for fault in result.faults:
            OUT.print(f"{cell.name}: {fault}", soft_wrap=True, highlight=False, markup=False)
    if write:
        Path(write).write_text(conformance_document(results))
    exact = sum(not result.faults for result in results.values())
    OUT.print(f"{exact} of {len(results)} files are exact.")
    return 0 if exact == len(results) else 1


def agreement_with_vllm(clips: Path | None = None) -> int:
    """Compare samplers with the vLLM loaders that they reproduce, and print equal choices and reasons of others.

    Args:
        clips: Folder of the files; None makes them.

    Returns:
        Exit code: 0 where every difference has a known reason, else 1.
    """
    with PROGRESS.status("Making files, and asking vLLM's loaders"):
        found = compare_kinds(kinds_of(clips) if clips else kinds())
    table = Table("Files", "Choices", "Equal", "Others, by reason", title="Samplers against vLLM's loaders")
    for title, outcomes in found.items():
        counts = {outcome: len(names) for outcome, names in outcomes.items()}
        others = [f"{count} {outcome}" for outcome, count in counts.items() if outcome != EQUAL]
        table.add_row(title, str(sum(counts.values())), str(counts.get(EQUAL, 0)), "\n".join(sorted(others)))
    OUT.print(table)
    faults = unexplained(found)
    for name in faults:
        OUT.print(f"{name}: differs for no known reason", soft_wrap=True, highlight=False, markup=False)
    return 1 if faults else 0


def fuzz(count: int, *, seed: int, only: str, as_json: bool, keep: str | None) -> int:
    """Fuzz the extraction, print the report, and keep the mutants with a fault.

    Returns:
        Exit code: 0 where every mutant ended as it must, else 1.

    Raises:
        typer.BadParameter: No file begins with `only`.
    """
    report = fuzz_extraction(count, seed, bases=_cells(only) if only else BASES)
    if keep:
        _keep(report, Path(keep))
    if as_json:
        print_json(_fuzz_json(report, seed))
    else:
        _print_fuzz(report, seed)
    return 0 if report.is_sound else 1


def _cells(prefix: str) -> Sequence[Cell]:
    cells = cells_like(prefix)
    if not cells:
        raise typer.BadParameter(
            f"No file of the matrix begins with {prefix!r}; use for example avi or avi/mpeg4.", param_hint="--only"
        )
    return cells


def _keep(report: FuzzReport, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for mutant in (result.mutant for result in report.faults):
        (folder / f"{mutant.seed}-{mutant.number}").write_bytes(mutant.data)


def _fuzz_json(report: FuzzReport, seed: int) -> dict[str, Any]:
    return {
        "mutants": len(report.results),
        "seed": seed,
        "outcomes": {outcome.name.lower(): count for outcome, count in report.outcomes.most_common()},
        "codes": dict(report.codes.most_common()),
        "readable_share_with_frames": round(report.share, 4),
        "slowest_s": round(max(result.extract_s for result in report.results), 3),
        "wall_s": round(report.wall_s, 1),
        "faults": [_fault_json(result) for result in report.faults],
    }


def _fault_json(result: MutantResult) -> dict[str, Any]:
    mutant = result.mutant
    return {
        "number": mutant.number,
        "base": mutant.base.name,
        "steps": mutant.steps,
        "num_frames": mutant.num_frames,
        "outcome": result.outcome.value,
        "detail": result.detail,
    }


def _print_fuzz(report: FuzzReport, seed: int) -> None:
    facts = _fuzz_json(report, seed)
    table = Table("Outcome", "Mutants", title=f"{facts['mutants']} mutants, seed {seed}", title_justify="left")
    for outcome, count in report.outcomes.most_common():
        table.add_row(outcome.value, f"{count:,}")
    OUT.print(table)
    OUT.print(f"Error codes: {facts['codes']}", soft_wrap=True)
    OUT.print(
        f"{report.share:.1%} of the mutants that a linear decode can read gave frames (at least {REQUIRED_SHARE:.0%} "
        f"must); {report.wall_s / len(report.results):.3f} s per mutant, the slowest {facts['slowest_s']} s.",
        soft_wrap=True,
    )
    for fault in facts["faults"]:
        OUT.print(f"  [red]{fault['number']}[/red] {fault['base']}: {fault['outcome']}", soft_wrap=True)
        OUT.print(f"      {fault['detail']}", soft_wrap=True, highlight=False, markup=False)
