"""A plan's jobs in the store: Arrow IPC files with one record batch per shard.

A file contains the batches of `SHARDS_PER_FILE` shards. A worker fetches its shard with range reads of one object,
whatever the size of the manifest.
"""

from __future__ import annotations

import io
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Self

import polars as pl
import pyarrow as pa

from infra.errors import PlanLostError
from reelabel.errors import ObjectChangedError, ObjectMissingError
from tasks.domain import Job, Shard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from reelabel.sources.object_store import ObjectInfo, ObjectStore

SHARDS_PER_FILE = 256
# Large types: videos inlined as data: URIs may exceed 2 GiB together.
PLAN_SCHEMA = pa.schema(
    [
        ("job_id", pa.large_string()),
        ("video_uri", pa.large_string()),
        ("prompt", pa.large_string()),
        ("choices", pa.large_list(pa.large_string())),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
        *((name, pa.large_string()) for name in ("messages", "system_prompt", "template", "examples")),
        *((name, pa.large_string()) for name in ("answer", "task", "subtask")),
    ]
)
# Prompts and choices repeat. Zstandard would compress better, but is much slower to write.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
# Covers a file's footer, which locates each batch: 24 bytes per batch, and the schema.
_TAIL_BYTES = 32 * 1024
_CACHED_TAILS = 16


class PlanWriter:
    """Writes shards in order; buffers one file of them in memory.

    The files take effect once the plan has its row: see `tasks.plans.plan.open_plan`.

    Attributes:
        jobs: Number of jobs per shard, in order.
    """

    def __init__(self, objects: ObjectStore, plan_uri: str) -> None:
        """Start a plan.

        Args:
            objects: The store.
            plan_uri: The plan's folder.
        """
        self.jobs: list[int] = []
        self._objects = objects
        self._plan_uri = plan_uri
        self._start_file()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write the last file, unless an exception was raised."""
        if kind is None and len(self.jobs) % SHARDS_PER_FILE:
            self._write_file()

    def add(self, rows: pl.DataFrame, sizes: Sequence[int]) -> None:
        """Write the next shards.

        Args:
            rows: Their jobs, shard after shard, with jobs on one video adjacent; at least PLAN_SCHEMA's columns.
            sizes: Number of rows per shard.

        Raises:
            ConfigurationError: The store denies access.
            StoreUnavailableError: The store does not respond.
        """
        table = rows.select(PLAN_SCHEMA.names).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(PLAN_SCHEMA)
        [batch] = table.combine_chunks().to_batches()
        for size, end in zip(sizes, accumulate(sizes), strict=True):
            self._add(batch.slice(end - size, size))

    def _add(self, shard: pa.RecordBatch) -> None:
        self._ipc.write_batch(shard)
        self.jobs.append(shard.num_rows)
        if len(self.jobs) % SHARDS_PER_FILE == 0:
            self._write_file()
            self._start_file()

    def _start_file(self) -> None:
        self._file = io.BytesIO()
        self._ipc = pa.ipc.new_file(self._file, PLAN_SCHEMA, options=_COMPRESSED)

    def _write_file(self) -> None:
        self._ipc.close()
        self._objects.replace(_file_uri(self._plan_uri, len(self.jobs) - 1), self._file.getvalue())


def read_shard(objects: ObjectStore, plan_uri: str, index: int) -> Shard:
    """Read one shard of a plan; takes one range read once the file's footer is cached.

    Args:
        objects: The store.
        plan_uri: The plan's folder.
        index: Position of the shard in the plan, from 0.

    Raises:
        PlanLostError: The plan's files are gone.
        StoreUnavailableError: The store does not respond.
    """
    uri = _file_uri(plan_uri, index)
    try:
        with pa.PythonFile(_RemoteFile(objects, *_read_tail(objects, uri)), mode="r") as file:
            batch = pa.ipc.open_file(file).get_batch(index % SHARDS_PER_FILE)
    except (ObjectMissingError, ObjectChangedError):
        raise PlanLostError(f"The plan's file {uri} is gone; run again to plan the unfinished jobs again.") from None
    return Shard(index=index, jobs=tuple(Job(**row | {"choices": tuple(row["choices"])}) for row in batch.to_pylist()))


@lru_cache(maxsize=_CACHED_TAILS)
def _read_tail(objects: ObjectStore, uri: str) -> tuple[ObjectInfo, bytes]:
    """Stat a file and read its tail; cached, since a file never changes once written."""
    info = objects.stat(uri)
    start = max(0, info.size_bytes - _TAIL_BYTES)
    return info, objects.read_range(uri, start=start, size=_TAIL_BYTES, fingerprint=info.fingerprint)


class _RemoteFile(io.RawIOBase):
    """An object of the store as a seekable file: range reads, except for the cached tail."""

    def __init__(self, objects: ObjectStore, info: ObjectInfo, tail: bytes) -> None:
        self._objects = objects
        self._info = info
        self._tail = tail
        self._position = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._info.size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        info, start = self._info, self._position
        size = info.size_bytes - start if size < 0 else min(size, info.size_bytes - start)
        in_tail = start - (info.size_bytes - len(self._tail))
        if in_tail >= 0:
            data = self._tail[in_tail : in_tail + size]
        else:
            data = self._objects.read_range(info.uri, start=start, size=size, fingerprint=info.fingerprint)
        self._position += len(data)
        return data


def _file_uri(plan_uri: str, index: int) -> str:
    return f"{plan_uri}/{index // SHARDS_PER_FILE:06}.arrow"
