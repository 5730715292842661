"""`reelabel bench cache`: time and memory of listing a cache, and of making room in it, by its number of files."""

from __future__ import annotations

import hashlib
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.frames.collect import cached_files, make_room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from infra.objects import ObjectStore

_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow:
    """What a cache of so many files takes.

    Attributes:
        files: Files found.
        list_s: Seconds to list them.
        list_peak_bytes: Most memory that Python held meanwhile, beyond what it held before.
        plan_s: Seconds to find which files must go for half of the bytes to stay.
        plan_peak_bytes: Memory, as above.
    """

    files: int
    list_s: float
    list_peak_bytes: int
    plan_s: float
    plan_peak_bytes: int


def measure_cache(objects: ObjectStore, root_uri: str, counts: Sequence[int]) -> Iterator[CacheRow]:
    """Fill a cache with files of one byte, measure at each count, and empty it again.

    Args:
        objects: The store.
        root_uri: Where on it the files are put; nothing else may stand there.
        counts: Numbers of files, ascending.
    """
    written = 0
    try:
        for count in counts:
            _fill(objects, root_uri, range(written, count))
            written = count
            yield _measure(objects, root_uri, count)
    finally:
        make_room(objects, root_uri, max_bytes=0)


def _measure(objects: ObjectStore, root_uri: str, count: int) -> CacheRow:
    files = 0

    def count_files() -> None:
        nonlocal files
        files = sum(1 for _ in cached_files(objects, root_uri))

    def plan() -> None:
        make_room(objects, root_uri, max_bytes=count // 2, dry_run=True)

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
        else:  # the store would wait for the disk each time, and writing is not what is measured
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")

    with ThreadPoolExecutor(_THREADS) as workers:
        # In slices: a hundred thousand waiting calls would be memory of our own making.
        for start in range(numbers.start, numbers.stop, 1000):
            list(workers.map(put, range(start, min(start + 1000, numbers.stop))))


def _time_s(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _peak_bytes(call: Callable[[], None]) -> int:
    """Trace a call's memory, in a pass of its own: tracing slows it down."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        call()
        _, peak = tracemalloc.get_traced_memory()
        return peak - before
    finally:
        tracemalloc.stop()
