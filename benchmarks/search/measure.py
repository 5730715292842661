"""Building the index of made embeddings, searching it, and the frames that it misses; each in a process of its own."""

from __future__ import annotations

import resource
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from benchmarks.scale.process import run_in_process
from benchmarks.search.vectors import FRAMES_PER_FILE, MadeVectors, exact_neighbours
from tasks.search.catalogue import FILES
from tasks.search.local_index import LocalIndex
from tasks.search.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from tasks.embedding.vector_file import VectorCache

TOP = 10
KINDS = ("frames", "texts")
_STEP_MS = 625


@dataclass(frozen=True, slots=True)
class QueryCost:
    """What a query takes of the machine, all threads together; the mean over all queries.

    Attributes:
        user_ms: Milliseconds of CPU time in the program: what other load cannot change much.
        system_ms: The same in the kernel, which maps the pages of files.
        wait_ms: Milliseconds for which threads that could run waited for a core.
        minor_faults: Pages that were mapped from memory.
        major_faults: Pages that were read from the disk.
    """

    user_ms: float
    system_ms: float
    wait_ms: float
    minor_faults: float
    major_faults: float

    @property
    def cpu_ms(self) -> float:
        """All CPU time."""
        return self.user_ms + self.system_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """What was measured of a search.

    Attributes:
        vectors: Number of vectors.
        build_s: Seconds to build the index of a machine, without the store's part.
        build_bytes: Peak memory of that process.
        index_bytes: Size of the index.
        open_s: Seconds to open it in a new process.
        ms: Milliseconds of each query, by kind, one query at a time.
        cost: What a query takes.
        recall: Share of the ten best frames of the exact search that were found, by kind.
        anonymous_bytes: Memory of the searching process that is not a mapped file, at the end.
        mapped_bytes: Mapped files in its memory, which the system takes back when it needs them.
        update_s: Seconds to open it and add a hundredth.
    """

    vectors: int
    build_s: float
    build_bytes: int
    index_bytes: int
    open_s: float
    ms: Mapping[str, list[float]]
    cost: QueryCost
    recall: Mapping[str, float]
    anonymous_bytes: int
    mapped_bytes: int
    update_s: float

    def median_ms(self, kind: str) -> float:
        """Return the median of a kind of queries."""
        return float(np.median(self.ms[kind]))

    def p95_ms(self, kind: str) -> float:
        """Return the 95th percentile of a kind of queries."""
        return float(np.percentile(self.ms[kind], 95))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Made vectors, what is searched for in them, and what there is to find.

    Attributes:
        folder: Holds the index.
        dimensions: Size of a vector.
        files: Number of embedding files.
        queries: By kind; shape (Q, D).
        truth: Numbers of the frames that fit best, by kind; shape (Q, 10).
    """

    folder: Path
    dimensions: int
    files: int
    queries: Mapping[str, npt.NDArray[np.float32]]
    truth: Mapping[str, npt.NDArray[np.int64]]

    @property
    def made(self) -> MadeVectors:
        """The vectors."""
        return MadeVectors(dimensions=self.dimensions)

    def searcher(self, files: int) -> Searcher:
        """Open the index, and add what it lacks of the first files."""
        made = self.made
        table = pl.DataFrame({"key": made.keys(0, files), "video": range(files)}, schema=FILES)
        index = LocalIndex(self.folder / "search", made.space)
        return Searcher(table, cast("VectorCache", made), index, is_whole=True)

    def recall(self, kind: str, found: list[npt.NDArray[np.int64]]) -> float:
        """Return the share of the best frames that were found."""
        shares = [len(np.intersect1d(a, b)) / TOP for a, b in zip(found, self.truth[kind], strict=True)]
        return float(np.mean(shares))


def make_case(folder: Path, *, dimensions: int, vectors: int, queries: int) -> Case:
    """Make queries, and find their truth by comparing all vectors."""
    made, files = MadeVectors(dimensions=dimensions), max(1, vectors // FRAMES_PER_FILE)
    wanted = {kind: made.queries(queries, kind=kind) for kind in KINDS}
    numbers, _ = exact_neighbours(map(made.file, range(files)), np.concatenate(list(wanted.values())), top=TOP)
    truth = dict(zip(KINDS, np.split(numbers, len(KINDS)), strict=True))
    return Case(folder=folder, dimensions=dimensions, files=files, queries=wanted, truth=truth)


def measure_search(case: Case) -> SearchRow:
    """Build, open and search the index; then add a hundredth."""
    built = run_in_process(build_step, case, case.files)
    found = run_in_process(search_step, case).value
    size_bytes = sum(path.stat().st_size for path in (case.folder / "search").rglob("*.arrow"))
    added = run_in_process(build_step, case, case.files + max(1, case.files // 100))
    return SearchRow(
        vectors=case.files * FRAMES_PER_FILE,
        build_s=built.seconds,
        build_bytes=built.peak_bytes,
        index_bytes=size_bytes,
        open_s=found["open_s"],
        ms=found["ms"],
        cost=found["cost"],
        recall=found["recall"],
        anonymous_bytes=found["anonymous_bytes"],
        mapped_bytes=found["mapped_bytes"],
        update_s=added.seconds,
    )


def build_step(case: Case, files: int) -> None:
    """Bring the index up to date."""
    assert case.searcher(files).rows == files * FRAMES_PER_FILE


def search_step(case: Case) -> dict[str, Any]:
    """Open the index again, and search it."""
    started = time.perf_counter()
    searcher = case.searcher(case.files)
    open_s = time.perf_counter() - started
    timed = time_queries(case, lambda query: searcher.search(query, top=TOP))
    memory = memory_bytes()
    recall = {}
    for kind, queries in case.queries.items():
        found = [searcher.find(query, limit=TOP) for query in queries]
        recall[kind] = case.recall(kind, [each.files * FRAMES_PER_FILE + each.pts_ms // _STEP_MS for each in found])
    return {"open_s": open_s, "recall": recall, **timed, **memory}


def time_queries(case: Case, search: Callable[[npt.NDArray[np.float32]], object]) -> dict[str, Any]:
    """Time each query, after one of each kind that is not counted; return `ms` by kind, and the `cost` of a query."""
    ms: dict[str, list[float]] = {}
    for queries in case.queries.values():
        search(queries[0])
    before = _spent()
    for kind, queries in case.queries.items():
        ms[kind] = []
        for query in queries:
            started = time.perf_counter()
            search(query)
            ms[kind].append((time.perf_counter() - started) * 1e3)
    count = sum(map(len, ms.values()))
    each = [(after - earlier) / count for after, earlier in zip(astuple(_spent()), astuple(before), strict=True)]
    return {"ms": ms, "cost": QueryCost(*each)}


def _spent() -> QueryCost:
    """Return what this process has taken so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    waits = [int(path.read_text().split()[1]) for path in Path("/proc/self/task").glob("*/schedstat")]
    return QueryCost(used.ru_utime * 1e3, used.ru_stime * 1e3, sum(waits) / 1e6, used.ru_minflt, used.ru_majflt)


def memory_bytes() -> dict[str, int]:
    """Return the physical memory of this process: what is its own, and what is of mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines) if "Rss" in name
    }
    return {"anonymous_bytes": found["RssAnon"], "mapped_bytes": found["RssFile"] + found["RssShmem"]}
