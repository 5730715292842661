"""A plan's jobs on the store: Arrow IPC files, one record batch a shard.

A file holds the batches of `SHARDS_PER_FILE` shards, so that a worker fetches its shard by ranged reads
of one object, whatever the size of the manifest.
"""

from __future__ import annotations

import io
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Self

import polars as pl
import pyarrow as pa

from infra.errors import ObjectChangedError, ObjectMissingError, PlanLostError
from tasks.domain import Job, Shard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from infra.objects import ObjectInfo, ObjectStore

SHARDS_PER_FILE = 256
# Large types: videos that stand in their URIs may come to more than 2 GiB together.
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
# Prompts and choices repeat; Zstandard would make it smaller, but is much slower to write.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
# Holds a file's footer, which says where each batch is: 24 bytes a batch, and the schema.
_TAIL_BYTES = 32 * 1024
_TAILS_KEPT = 16


class PlanWriter:
    """Writes shards in order; holds one file's worth of them in memory.

    What was written counts once the plan has its row: see `tasks.plans.plan.open_plan`.

    Attributes:
        jobs: How many jobs each shard has, in order.
    """

    def __init__(self, objects: ObjectStore, plan_uri: str) -> None:
        """Begin a plan.

        Args:
            objects: The store.
            plan_uri: Folder of the plan's own.
        """
        self.jobs: list[int] = []
        self._objects = objects
        self._plan_uri = plan_uri
        self._start_file()

    def __enter__(self) -> Self:
        """Give the writer itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write the last file, unless the plan was broken off."""
        if kind is None and len(self.jobs) % SHARDS_PER_FILE:
            self._write_file()

    def add(self, rows: pl.DataFrame, sizes: Sequence[int]) -> None:
        """Write the next shards.

        Args:
            rows: Their jobs, one shard behind the other, those of one video side by side; PLAN_SCHEMA's columns,
                perhaps among others.
            sizes: How many of the rows are each shard's.

        Raises:
            ConfigurationError: The store refuses.
            StoreUnavailableError: It does not answer.
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
    """Read one shard of a plan: one ranged read, where its file was read from before.

    Args:
        objects: The store.
        plan_uri: The plan's folder.
        index: Position of the shard in the plan, from 0.

    Raises:
        PlanLostError: The plan's files are gone.
        StoreUnavailableError: The store does not answer.
    """
    uri = _file_uri(plan_uri, index)
    try:
        with pa.PythonFile(_Parts(objects, *_look_at(objects, uri)), mode="r") as file:
            batch = pa.ipc.open_file(file).get_batch(index % SHARDS_PER_FILE)
    except (ObjectMissingError, ObjectChangedError):
        raise PlanLostError(f"The plan's file {uri} is gone; run again, and what is missing is planned anew.") from None
    return Shard(index=index, jobs=tuple(Job(**row | {"choices": tuple(row["choices"])}) for row in batch.to_pylist()))


@lru_cache(maxsize=_TAILS_KEPT)
def _look_at(objects: ObjectStore, uri: str) -> tuple[ObjectInfo, bytes]:
    """Find a file and its last bytes; nobody changes it once it is written."""
    info = objects.stat(uri)
    start = max(0, info.size_bytes - _TAIL_BYTES)
    return info, objects.read_range(uri, start=start, size=_TAIL_BYTES, fingerprint=info.fingerprint)


class _Parts(io.RawIOBase):
    """An object of the store as a file, whose reads are ranged ones but for its tail."""

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
