"""Measures building and searching the index of synthetic embeddings, each in a separate process, and its recall."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from benchmarks.harness import GIB, Column, Table, Target, progress, run_in_process, status_bytes
from benchmarks.search.vectors import FRAMES_PER_FILE, MODEL, MadeVectors, exact_neighbours
from tasks.search.catalogue import FILES
from tasks.search.local_index import LocalIndex
from tasks.search.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from benchmarks.harness import Row
    from tasks.embedding.vector_file import VectorCache
    from tasks.search.hits import Hits

TOP = 10
KINDS = ("frames", "texts")
_STEP_MS = 625


def _percentile(kind: str, percent: int, row: Row) -> float:
    return float(np.percentile(row["ms"][kind], percent))


def _recall(kind: str, row: Row) -> float:
    return float(row["recall"][kind])


# Of so many vectors, in milliseconds; of more, in proportion to the last.
_MOST_MS = {1_000_000: 300, 10_000_000: 1500}
_LEAST_RECALL = 1.0
_EQUAL = 1e-6  # cosines are right to that, so that the best of two frames is not known
_MOST_BYTES = GIB
_COLUMNS = (
    Column("", lambda row: f"{row['vectors']:,} vectors"),
    Column("build, s", "build_s", ".0f"),
    Column("build, GiB", lambda row: row["build_bytes"] / GIB, ".1f"),
    Column("open, and add a hundredth, s", "update_s", ".1f"),
    Column("index, GiB", lambda row: row["index_bytes"] / GIB, ".2f"),
    Column("open, s", "open_s", ".2f"),
    *(
        column
        for kind in KINDS
        for column in (
            Column(f"{kind}: median ms", partial(_percentile, kind, 50), ".1f"),
            Column(f"{kind}: 95th percentile", partial(_percentile, kind, 95), ".1f"),
            Column(f"{kind}: recall", partial(_recall, kind), ".3f"),
        )
    ),
    Column("CPU ms of a query", "cpu_ms", ".0f"),
    Column("memory, GiB", lambda row: row["anonymous_bytes"] / GIB, ".2f"),
    Column("mapped files in memory, GiB", lambda row: row["mapped_bytes"] / GIB, ".2f"),
)


def run(folder: Path, vectors: Sequence[int], *, dimensions: int, queries: int) -> tuple[list[Table], list[Target]]:
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for count in vectors:
        with TemporaryDirectory(dir=folder) as place, progress(f"{count:,} vectors: comparing all") as show:
            case = make_case(Path(place), dimensions=dimensions, vectors=count, queries=queries)
            show(f"{count:,} vectors: building, opening and searching the index")
            rows.append(measure_search(case))
    return [Table(f"Search among vectors of {dimensions}", rows, _COLUMNS, across=True)], targets(rows)


def targets(rows: Sequence[Row]) -> list[Target]:
    """Return what is to be reached: time of a query, recall, and memory that is not a mapped file."""
    found = []
    for row in rows:
        among, slowest = f"{row['vectors']:,} vectors", max(_percentile(kind, 50, row) for kind in KINDS)
        found += [
            Target(f"{among}: ms a query", slowest, most=most_ms(row["vectors"])),
            Target(f"{among}: recall", min(row["recall"].values()), least=_LEAST_RECALL),
            Target(f"{among}: GiB of memory", row["anonymous_bytes"] / GIB, most=_MOST_BYTES / GIB),
        ]
    return found


def most_ms(vectors: int) -> float:
    """Return the milliseconds that a query among some vectors may take."""
    return next((ms for count, ms in _MOST_MS.items() if vectors <= count), _MOST_MS[10_000_000] * vectors / 10**7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Made vectors, what is searched for in them, and what there is to find.

    Attributes:
        folder: Holds the index.
        dimensions: Size of a vector.
        files: Number of embedding files.
        queries: By kind; shape (Q, D).
        truth: Numbers of the frames that fit best, by kind; shape (Q, 10).
        least: Cosine of the last of them, by kind; shape (Q,).
    """

    folder: Path
    dimensions: int
    files: int
    queries: Mapping[str, npt.NDArray[np.float32]]
    truth: Mapping[str, npt.NDArray[np.int64]]
    least: Mapping[str, npt.NDArray[np.float32]]

    @property
    def made(self) -> MadeVectors:
        return MadeVectors(dimensions=self.dimensions)

    def searcher(self, files: int) -> Searcher:
        """Open the index, and add what it lacks of the first files."""
        made = self.made
        table = pl.DataFrame({"key": made.keys(0, files), "video": range(files)}, schema=FILES)
        index = LocalIndex(self.folder / "search", MODEL)
        return Searcher(table, cast("VectorCache", made), index, is_whole=True)

    def recall(self, kind: str, found: list[Hits]) -> float:
        """Return the share of the best frames that were found; others that fit as well as the last of them count."""
        shares = []
        for hits, truth, least in zip(found, self.truth[kind], self.least[kind], strict=True):
            is_true = np.isin(hits.files * FRAMES_PER_FILE + hits.pts_ms // _STEP_MS, truth)
            shares.append(np.mean(is_true | (np.abs(hits.scores - least) <= _EQUAL)))
        return float(np.mean(shares))


def make_case(folder: Path, *, dimensions: int, vectors: int, queries: int) -> Case:
    """Make queries, and find their truth by comparing all vectors."""
    made, files = MadeVectors(dimensions=dimensions), max(1, vectors // FRAMES_PER_FILE)
    wanted = {kind: made.queries(queries, kind=kind) for kind in KINDS}
    numbers, cosines = exact_neighbours(map(made.file, range(files)), np.concatenate(list(wanted.values())), top=TOP)
    truth = dict(zip(KINDS, np.split(numbers, len(KINDS)), strict=True))
    least = dict(zip(KINDS, np.split(cosines[:, -1], len(KINDS)), strict=True))
    return Case(folder=folder, dimensions=dimensions, files=files, queries=wanted, truth=truth, least=least)


def measure_search(case: Case) -> dict[str, Any]:
    """Build, open and search the index; then add a hundredth."""
    built = run_in_process(build_step, case, case.files)
    found = run_in_process(search_step, case).value
    size_bytes = sum(path.stat().st_size for path in (case.folder / "search").rglob("*.arrow"))
    added = run_in_process(build_step, case, case.files + max(1, case.files // 100))
    return {
        "vectors": case.files * FRAMES_PER_FILE,
        "build_s": built.seconds,
        "build_bytes": built.peak_bytes,
        "index_bytes": size_bytes,
        "update_s": added.seconds,
        **found,
    }


def build_step(case: Case, files: int) -> None:
    assert case.searcher(files).rows == files * FRAMES_PER_FILE


def search_step(case: Case) -> dict[str, Any]:
    started = time.perf_counter()
    searcher = case.searcher(case.files)
    open_s = time.perf_counter() - started
    timed = time_queries(case, lambda query: searcher.search(query, top=TOP))
    memory = memory_bytes()
    recall = {}
    for kind, queries in case.queries.items():
        recall[kind] = case.recall(kind, [searcher.find(query, limit=TOP) for query in queries])
    return {"open_s": open_s, "recall": recall, **timed, **memory}


def time_queries(case: Case, search: Callable[[npt.NDArray[np.float32]], object]) -> dict[str, Any]:
    """Time each query, after one of each kind that is not counted; return `ms` by kind, and `cpu_ms` of a query."""
    ms: dict[str, list[float]] = {}
    for queries in case.queries.values():
        search(queries[0])
    before_s = time.process_time()
    for kind, queries in case.queries.items():
        ms[kind] = []
        for query in queries:
            started = time.perf_counter()
            search(query)
            ms[kind].append((time.perf_counter() - started) * 1e3)
    cpu_ms = (time.process_time() - before_s) * 1e3 / sum(map(len, ms.values()))
    return {"ms": ms, "cpu_ms": cpu_ms}


def memory_bytes() -> dict[str, int]:
    """Return the physical memory of this process: what is its own, and what is of mapped files."""
    mapped = status_bytes("RssFile") + status_bytes("RssShmem")
    return {"anonymous_bytes": status_bytes("RssAnon"), "mapped_bytes": mapped}
