"""Libraries of the field on the same vectors: FAISS in memory, and LanceDB on a folder. Each in a process of its own.

Both are installed into a folder of the bench's own; neither is needed otherwise.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.scale.process import run_in_process
from benchmarks.search.measure import TOP, Case, SearchRow, memory_bytes, time_queries
from benchmarks.search.vectors import FRAMES_PER_FILE
from tasks.search.lists import SAMPLES_PER_LIST, count_lists
from tasks.search.opened_index import ROWS_COMPARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

PEERS = ("faiss", "lancedb")
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_FILES_AT_ONCE = 50
_REFINE = 10


def measure_peer(name: str, case: Case, packages: Path) -> SearchRow:
    """Build and search the index of a library, with as many lists as ours and as many vectors compared."""
    build, search = {"faiss": (_build_faiss, _search_faiss), "lancedb": (_build_lancedb, _search_lancedb)}[name]
    place = case.folder / name
    place.mkdir(parents=True, exist_ok=True)
    built = run_in_process(_step, build, case, packages)
    found = run_in_process(_step, search, case, packages).value
    return SearchRow(
        method=name,
        vectors=case.files * FRAMES_PER_FILE,
        build_s=built.seconds,
        build_bytes=built.peak_bytes,
        index_bytes=sum(path.stat().st_size for path in place.rglob("*") if path.is_file()),
        open_s=(found["open_s"], found["open_s"]),
        ms=found["ms"],
        cost=found["cost"],
        recall=found["recall"],
        anonymous_bytes=found["anonymous_bytes"],
        mapped_bytes=found["mapped_bytes"],
    )


def _step(work: Callable[[Case], Any], case: Case, packages: Path) -> Any:  # noqa: ANN401 - the step's own
    sys.path.append(str(packages))
    return work(case)


def _blocks(case: Case) -> Iterator[npt.NDArray[np.float32]]:
    made = case.made
    for first in range(0, case.files, _FILES_AT_ONCE):
        numbers = range(first, min(case.files, first + _FILES_AT_ONCE))
        yield np.concatenate([made.file(number) for number in numbers])


def _probes(case: Case) -> tuple[int, int]:
    rows = case.files * FRAMES_PER_FILE
    lists = count_lists(rows)
    return lists, max(1, round(lists * min(1, ROWS_COMPARED / rows)))


def _build_faiss(case: Case) -> None:
    import faiss  # noqa: PLC0415

    lists, _ = _probes(case)
    index = faiss.index_factory(case.dimensions, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
    step = max(1, case.files // -(-SAMPLES_PER_LIST * lists // FRAMES_PER_FILE))
    index.train(np.concatenate([case.made.file(number) for number in range(0, case.files, step)]))
    for block in _blocks(case):
        index.add(block)
    faiss.write_index(index, str(case.folder / "faiss" / "index"))


def _search_faiss(case: Case) -> dict[str, Any]:
    import faiss  # noqa: PLC0415

    started = time.perf_counter()
    index = faiss.read_index(str(case.folder / "faiss" / "index"))
    open_s = time.perf_counter() - started
    index.nprobe = _probes(case)[1]
    index.parallel_mode = 1  # the lists of one query on all cores
    return _search(case, lambda query: index.search(query[None], TOP)[1][0], open_s)


def _build_lancedb(case: Case) -> None:
    import lancedb  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    kind = pa.list_(pa.float32(), case.dimensions)
    schema = pa.schema([("number", pa.int64()), ("vector", kind)])

    def batches() -> Iterator[Any]:
        first = 0
        for block in _blocks(case):
            flat = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), case.dimensions)
            yield pa.record_batch([pa.array(np.arange(first, first + len(block))), flat], schema=schema)
            first += len(block)

    table = lancedb.connect(str(case.folder / "lancedb")).create_table("frames", batches(), schema=schema)
    table.create_index(
        metric="cosine",
        vector_column_name="vector",
        index_type="IVF_PQ",
        num_partitions=_probes(case)[0],
        num_sub_vectors=case.dimensions // 8,
    )


def _search_lancedb(case: Case) -> dict[str, Any]:
    import lancedb  # noqa: PLC0415

    started = time.perf_counter()
    table = lancedb.connect(str(case.folder / "lancedb")).open_table("frames")
    open_s = time.perf_counter() - started
    probes = _probes(case)[1]

    def search(query: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        found = table.search(query).distance_type("cosine").nprobes(probes).refine_factor(_REFINE).limit(TOP)
        numbers: npt.NDArray[np.int64] = found.select(["number"]).to_arrow()["number"].to_numpy()
        return numbers

    return _search(case, search, open_s)


def _search(
    case: Case, search: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.int64]], open_s: float
) -> dict[str, Any]:
    timed = time_queries(case, search)
    memory = memory_bytes()
    recall = {kind: case.recall(kind, [search(query) for query in queries]) for kind, queries in case.queries.items()}
    return {"open_s": open_s, "recall": recall, **timed, **memory}
