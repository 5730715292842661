"""The table of the bench of search, and its targets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.console import OUT, PROGRESS, figures_table, print_json
from benchmarks.search.measure import KINDS, make_case, measure_search

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from benchmarks.search.measure import SearchRow

# Of so many vectors, in milliseconds; of more, in proportion to the last.
_MOST_MS = {1_000_000: 300, 10_000_000: 1500}
LEAST_RECALL = 0.999
MOST_BYTES = 1024**3
_GIB = 1024**3


def run(folder: Path, vectors: Sequence[int], *, dimensions: int, queries: int, as_json: bool) -> int:
    """Measure; print a table or JSON; return 1 if a target is missed, else 0."""
    rows: list[SearchRow] = []
    folder.mkdir(parents=True, exist_ok=True)
    for count in vectors:
        with TemporaryDirectory(dir=folder) as place, PROGRESS.status(f"{count:,} vectors: comparing all") as status:
            case = make_case(Path(place), dimensions=dimensions, vectors=count, queries=queries)
            status.update(f"{count:,} vectors: building, opening and searching the index")
            rows.append(measure_search(case))
    verdicts = targets(rows)
    if as_json:
        print_json({"rows": [asdict(row) for row in rows], "targets": verdicts})
    else:
        OUT.print(search_table(rows, dimensions))
        for sentence, is_met in verdicts.items():
            OUT.print(f"{'met' if is_met else 'MISSED'}: {sentence}")
    return int(not all(verdicts.values()))


def targets(rows: Sequence[SearchRow]) -> dict[str, bool]:
    """Return what is to be reached, with figures, and whether it is."""
    verdicts: dict[str, bool] = {}
    for row in rows:
        slowest = max(row.median_ms(kind) for kind in KINDS)
        least = min(row.recall.values())
        own = row.anonymous_bytes
        among = f"{row.vectors:,} vectors"
        most = most_ms(row.vectors)
        verdicts[f"{among}: {slowest:.0f} ms a query, at most {most:.0f}"] = slowest <= most
        verdicts[f"{among}: recall of {least:.3f}, at least {LEAST_RECALL}"] = least >= LEAST_RECALL
        verdicts[f"{among}: {own / _GIB:.2f} GiB of memory, less than {MOST_BYTES / _GIB:.0f}"] = own < MOST_BYTES
    return verdicts


def most_ms(vectors: int) -> float:
    """Return the milliseconds that a query among some vectors may take."""
    return next((ms for count, ms in _MOST_MS.items() if vectors <= count), _MOST_MS[10_000_000] * vectors / 10**7)


def search_table(rows: Sequence[SearchRow], dimensions: int) -> Table:
    """Return a table with one column per number of vectors."""
    headings = ("", *(f"{row.vectors:,} vectors" for row in rows))
    table = figures_table(f"search among vectors of {dimensions}", headings)
    for line in zip(*map(_lines, rows), strict=True):
        table.add_row(line[0][0], *(text for _, text in line))
    return table


def _lines(row: SearchRow) -> Iterator[tuple[str, str]]:
    yield "build, s", f"{row.build_s:.0f}"
    yield "build, GiB", f"{row.build_bytes / _GIB:.1f}"
    yield "open, and add a hundredth, s", f"{row.update_s:.1f}"
    yield "index, GiB", f"{row.index_bytes / _GIB:.2f}"
    yield "open, s", f"{row.open_s:.2f}"
    for kind in KINDS:
        yield f"{kind}: median ms, 95th percentile", f"{row.median_ms(kind):.1f}, {row.p95_ms(kind):.1f}"
        yield f"{kind}: recall", f"{row.recall[kind]:.3f}"
    yield "CPU ms of a query", f"{row.cost.cpu_ms:.0f}"
    yield "of these, in the kernel", f"{row.cost.system_ms:.0f}"
    yield "ms that its threads waited for cores", f"{row.cost.wait_ms:.0f}"
    yield "pages mapped, read from the disk", f"{row.cost.minor_faults:,.0f}, {row.cost.major_faults:,.0f}"
    yield "memory, GiB", f"{row.anonymous_bytes / _GIB:.2f}"
    yield "mapped files in memory, GiB", f"{row.mapped_bytes / _GIB:.2f}"
