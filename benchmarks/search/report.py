"""The table of the bench of search, and its targets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.table import Table

from benchmarks.console import OUT, PROGRESS, print_json
from benchmarks.search.measure import KINDS, make_case, measure_index
from benchmarks.search.peers import install_peers, measure_peer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.search.measure import SearchRow

MOST_MS = 100
LEAST_RECALL = 0.9
MOST_BYTES = 1024**3
_GIB = 1024**3


def run(
    folder: Path, vectors: Sequence[int], *, dimensions: int, queries: int, peers: Sequence[str], as_json: bool
) -> int:
    """Measure; print a table or JSON.

    Returns:
        1 if a target is missed, else 0.
    """
    rows: list[SearchRow] = []
    folder.mkdir(parents=True, exist_ok=True)
    packages = install_peers(folder) if peers else folder
    for count in vectors:
        with TemporaryDirectory(dir=folder) as place, PROGRESS.status(f"{count:,} vectors: comparing all") as status:
            case = make_case(Path(place), dimensions=dimensions, vectors=count, queries=queries)
            status.update(f"{count:,} vectors: building, opening and searching the index")
            rows.append(measure_index(case))
            for name in peers:
                status.update(f"{count:,} vectors: {name}")
                rows.append(measure_peer(name, case, packages))
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
    for row in (row for row in rows if row.method == "index"):
        slowest = max(row.median_ms(kind) for kind in KINDS)
        least = min(row.recall.values())
        own = row.anonymous_bytes
        among = f"{row.vectors:,} vectors"
        verdicts[f"{among}: {slowest:.0f} ms a query, less than {MOST_MS}"] = slowest < MOST_MS
        verdicts[f"{among}: recall of {least:.3f}, at least {LEAST_RECALL}"] = least >= LEAST_RECALL
        verdicts[f"{among}: {own / _GIB:.2f} GiB of memory, less than {MOST_BYTES / _GIB:.0f}"] = own < MOST_BYTES
    return verdicts


def search_table(rows: Sequence[SearchRow], dimensions: int) -> Table:
    """Return a table with one row per method and number of vectors."""
    table = Table(title=f"search among vectors of {dimensions}", title_justify="left", box=SIMPLE)
    headings = ("method", "vectors", "build s", "its GiB", "add 1% s", "index GiB", "open s", "again s")
    kinds = [f"{kind} {what}" for kind in KINDS for what in ("ms", "p95", "recall")]
    for number, heading in enumerate((*headings, *kinds, "CPU ms", "memory GiB", "mapped GiB")):
        table.add_column(heading, justify="right" if number else "left")
    for row in rows:
        figures = [
            text
            for kind in KINDS
            for text in (f"{row.median_ms(kind):.1f}", f"{row.p95_ms(kind):.1f}", f"{row.recall[kind]:.3f}")
        ]
        table.add_row(
            row.method,
            f"{row.vectors:,}",
            f"{row.build_s:.0f}",
            f"{row.build_bytes / _GIB:.1f}",
            "" if row.update_s is None else f"{row.update_s:.1f}",
            f"{row.index_bytes / _GIB:.2f}",
            *(f"{seconds:.2f}" for seconds in row.open_s),
            *figures,
            f"{row.cpu_ms:.0f}",
            f"{row.anonymous_bytes / _GIB:.2f}",
            f"{row.mapped_bytes / _GIB:.2f}",
        )
    return table
