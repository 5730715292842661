"""Measures building and searching the index of synthetic embeddings, each in a separate process, and its recall.

As the embeddings of image-text models, those of frames share a direction, vary mostly in some hundred others, and
change little within a video. Texts share another direction, so that their cosines with frames are low.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from benchmarks.harness import GIB, Column, Table, Target, progress, run_in_process, status_bytes
from reelabel.digest import json_digest
from tasks.description.embeddings import Embeddings, normalize
from tasks.domain import ModelIdentity
from tasks.search.catalogue import FILES
from tasks.search.local_index import LocalIndex
from tasks.search.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from benchmarks.harness import Row
    from tasks.embedding.vector_file import VectorCache
    from tasks.search.hits import Hits

FRAMES_PER_FILE = 1000
_RANK = 128
_TOPICS = 5000
MODEL = ModelIdentity(name="made")
_STEP_MS = 625  # 16 frames in 10 s
TOP = 10
KINDS = ("frames", "texts")


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


@dataclass(frozen=True, kw_only=True)
class MadeVectors:
    """Embedding files of made vectors, in place of a `VectorCache`: each is made when it is read, always the same."""

    dimensions: int

    @cached_property
    def _world(self) -> tuple[npt.NDArray[np.float32], ...]:
        rng = np.random.default_rng(0)
        spectrum = (1 / np.sqrt(1 + np.arange(_RANK) / 16)).astype(np.float32)
        axes = np.linalg.qr(rng.normal(size=(self.dimensions, _RANK + 2)))[0].T.astype(np.float32)
        topics = normalize(rng.normal(size=(_TOPICS, _RANK)) * spectrum)
        return axes[2:], axes[0], axes[1], spectrum, topics

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {}

    def keys(self, first: int, count: int) -> list[str]:
        """Return the keys of some files, which can be read from then on."""
        made = {}
        for number in range(first, first + count):
            digest = json_digest({"file": number})
            made[f"v1/{digest[:2]}/{digest}.arrow"] = number
        self._numbers.update(made)
        return list(made)

    def read_stored(self, key: str) -> tuple[Embeddings, ModelIdentity]:
        vectors = self.file(self._numbers[key])
        pts_ms = np.arange(len(vectors), dtype=np.int64) * _STEP_MS
        return Embeddings(vectors=vectors, pts_ms=pts_ms), MODEL

    def file(self, number: int, *, frames: int = FRAMES_PER_FILE) -> npt.NDArray[np.float32]:
        """Return the vectors of a file; shape (frames, D)."""
        axes, shared, _, spectrum, topics = self._world
        rng = np.random.default_rng((0, number))
        video = 0.7 * normalize(rng.standard_normal(_RANK, np.float32) * spectrum)
        # A video is about three topics, one after another.
        about = topics[np.sort(rng.integers(0, _TOPICS, 3))].repeat(-(-frames // 3), axis=0)[:frames]
        noise = normalize(rng.standard_normal((frames, _RANK), np.float32) * spectrum)
        return normalize((about + video + 0.5 * noise) @ axes + shared)

    def queries(self, count: int, *, kind: str) -> npt.NDArray[np.float32]:
        """Return what is searched for: `frames` of other videos, or `texts` about topics; shape (count, D)."""
        axes, _, texts, spectrum, topics = self._world
        rng = np.random.default_rng((0, count, len(kind)))
        if kind == "frames":
            return np.concatenate([self.file(10**9 + number, frames=1) for number in range(count)])
        noise = normalize(rng.standard_normal((count, _RANK), np.float32) * spectrum)
        return normalize((topics[rng.integers(0, _TOPICS, count)] + 0.7 * noise) @ axes + texts)


def exact_neighbours(
    files: Iterator[npt.NDArray[np.float32]], queries: npt.NDArray[np.float32], *, top: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the numbers of the frames that fit best, shape (Q, top), best first, and their cosines, by comparing all.

    Each of the files has vectors of shape (N, D).
    """
    best = np.empty((len(queries), 0), np.float32)
    numbers = np.empty((len(queries), 0), np.int64)
    first = 0
    for vectors in files:
        scores = queries @ vectors.T
        near = np.argpartition(-scores, min(top, scores.shape[1]) - 1, axis=1)[:, :top]
        best = np.concatenate([best, np.take_along_axis(scores, near, axis=1)], axis=1)
        numbers = np.concatenate([numbers, near + first], axis=1)
        order = np.argsort(-best, axis=1, kind="stable")[:, :top]
        best, numbers = np.take_along_axis(best, order, axis=1), np.take_along_axis(numbers, order, axis=1)
        first += len(vectors)
    return numbers, best
