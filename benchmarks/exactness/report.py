"""Reports of conformance and fuzzing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from benchmarks.exactness.against_vllm import EQUAL, compare_kinds, kinds, kinds_of, unexplained
from benchmarks.exactness.conformance import check_cells
from benchmarks.exactness.document import conformance_document
from benchmarks.exactness.fuzz import BASES, REQUIRED_SHARE, fuzz_extraction
from benchmarks.harness import OUT, Column, Table, Target, progress, show
from benchmarks.media.matrix import cells_like, matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.media.matrix import Cell


def conformance(*, only: str, write: str | None) -> int:
    """Check every file of the matrix, print how many are exact, and write the document if asked to.

    Returns:
        Exit code: 0 where every file is exact, else 1.
    """
    if only and write:
        raise typer.BadParameter("The document covers every file; leave out --only.", param_hint="--write")
    with progress("Making and checking files"):
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
    """Compare samplers with the vLLM loaders that they reproduce, on the files of a folder, or on made ones.

    Returns:
        Exit code: 0 where every difference has a known reason, else 1.
    """
    with progress("Making files, and asking vLLM's loaders"):
        found = compare_kinds(kinds_of(clips) if clips else kinds())
    rows = []
    for title, outcomes in found.items():
        counts = {outcome: len(names) for outcome, names in outcomes.items()}
        others = sorted(f"{count} {outcome}" for outcome, count in counts.items() if outcome != EQUAL)
        row = {"files": title, "choices": sum(counts.values()), "equal": counts.get(EQUAL, 0)}
        rows.append(row | {"others": "\n".join(others)})
    columns = (
        Column("Files", "files"),
        Column("Choices", "choices"),
        Column("Equal", "equal"),
        Column("Others, by reason", "others"),
    )
    faults = unexplained(found)
    note = "\n".join(f"{name}: differs for no known reason" for name in faults)
    return show(
        [Table("Samplers against vLLM's loaders", rows, columns, note)],
        targets=[Target("differences for no known reason", len(faults), most=0)],
    )


def fuzz(count: int, *, seed: int, only: str, as_json: bool, keep: str | None) -> int:
    """Fuzz the extraction, print the report, and keep the mutants with a fault in a folder.

    Returns:
        Exit code: 0 where every mutant ended as it must, else 1.
    """
    report = fuzz_extraction(count, seed, bases=_cells(only) if only else BASES)
    if keep:
        Path(keep).mkdir(parents=True, exist_ok=True)
        for mutant in (result.mutant for result in report.faults):
            Path(keep, f"{mutant.seed}-{mutant.number}").write_bytes(mutant.data)
    rows = [{"outcome": outcome.value, "mutants": number} for outcome, number in report.outcomes.most_common()]
    columns = (Column("Outcome", "outcome"), Column("Mutants", "mutants", ","))
    faults = [
        {
            "number": result.mutant.number,
            "base": result.mutant.base.name,
            "steps": result.mutant.steps,
            "num_frames": result.mutant.num_frames,
            "outcome": result.outcome.value,
            "detail": result.detail,
        }
        for result in report.faults
    ]
    targets = [
        Target("mutants that ended as none must", len(faults), most=0),
        Target("share of those that a linear decode can read with frames", report.share, least=REQUIRED_SHARE),
    ]
    facts = {
        "codes": dict(report.codes.most_common()),
        "slowest_s": round(max(result.extract_s for result in report.results), 3),
        "wall_s": round(report.wall_s, 1),
        "faults": faults,
    }
    title = f"{len(report.results)} mutants, seed {seed}"
    return show([Table(title, rows, columns)], targets=targets, facts=facts, as_json=as_json)


def _cells(prefix: str) -> Sequence[Cell]:
    cells = cells_like(prefix)
    if not cells:
        raise typer.BadParameter(
            f"No file of the matrix begins with {prefix!r}; use for example avi or avi/mpeg4.", param_hint="--only"
        )
    return cells
