"""Time and memory of listing a frame cache and of planning its eviction, by number of files."""

from __future__ import annotations

import hashlib
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.frame_cache.eviction import cached_files, evict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reelabel.sources.object_store import ObjectStore

_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow:
    """Cost of a cache with this many files.

    Attributes:
        files: Files listed.
        list_s: Seconds to list them.
        list_peak_bytes: Peak of Python's memory during that, above what it held before.
        plan_s: Seconds to select the files to evict so that half of the bytes remain.
        plan_peak_bytes: Peak of Python's memory during that.
    """

    files: int
    list_s: float
    list_peak_bytes: int
    plan_s: float
    plan_peak_bytes: int


def measure_cache(objects: ObjectStore, root_uri: str, counts: Sequence[int]) -> Iterator[CacheRow]:
    """Fill a cache with files of one byte, measure at each count, and empty it afterwards.

    Args:
        objects: The store.
        root_uri: Where the files are written; must hold nothing else.
        counts: Numbers of files, ascending.
    """
    written = 0
    try:
        for count in counts:
            _fill(objects, root_uri, range(written, count))
            written = count
            yield _measure(objects, root_uri, count)
    finally:
        evict(objects, root_uri, max_bytes=0)


def _measure(objects: ObjectStore, root_uri: str, count: int) -> CacheRow:
    files = 0

    def count_files() -> None:
        nonlocal files
        files = sum(1 for _ in cached_files(objects, root_uri))

    def plan() -> None:
        evict(objects, root_uri, max_bytes=count // 2, dry_run=True)

    list_s, plan_s = _time_s(count_files), _time_s(plan)
    return CacheRow(
        files=files,
        list_s=list_s,
        list_peak_bytes=_peak_bytes(count_files),
        plan_s=plan_s,
        plan_peak_bytes=_peak_bytes(plan),
    )


def _fill(objects: ObjectStore, root_uri: str, numbers: range) -> None:
    def put(number: int) -> None:
        digest = hashlib.sha256(str(number).encode()).hexdigest()[:32]
        uri = f"{root_uri}/v1/{digest[:2]}/{digest}.arrow"
        path = objects.local_path(uri)
        if path is None:
            objects.replace(uri, b"x")
        else:  # the store would sync each file, and writing is not measured
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")

    with ThreadPoolExecutor(_THREADS) as workers:
        # In slices, so that queued calls do not add to the memory.
        for start in range(numbers.start, numbers.stop, 1000):
            list(workers.map(put, range(start, min(start + 1000, numbers.stop))))


def _time_s(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _peak_bytes(call: Callable[[], None]) -> int:
    """Trace the memory of a call, separately from its time, because tracing slows it down."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        call()
        _, peak = tracemalloc.get_traced_memory()
        return peak - before
    finally:
        tracemalloc.stop()
