"""Export to Parquet files, named after their run, in Hive partitions by dataset and date."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date
    from uuid import UUID

    from reelabel.sources.object_store import ObjectStore

_FILE_BYTES = 256 * 1024**2  # in memory


class ParquetFiles:
    def __init__(self, objects: ObjectStore, target: str) -> None:
        self._objects = objects
        self._target = target

    def write(
        self, table: str, parts: Iterator[pl.DataFrame], *, run_id: UUID, dataset: str, date: date
    ) -> tuple[int, dict[str, Any]]:
        """Replace the files of a run; return the number of rows and the files."""
        folder = f"{self._target}/{table}/{_partition(self._target, dataset)}/date={date}"
        files: dict[str, dict[str, Any]] = {}
        for number, rows in enumerate(_in_files(parts)):
            data = io.BytesIO()
            rows.drop("dataset").write_parquet(data, compression="zstd")
            name = f"{run_id}-{number:04}.parquet"
            self._objects.replace(f"{folder}/{name}", data.getvalue())
            files[name] = {"uri": f"{folder}/{name}", "rows": len(rows), "bytes": len(data.getvalue())}
        for found in list(self._objects.list(folder)):
            name = found.uri.rpartition("/")[2]
            if name.startswith(f"{run_id}-") and name not in files:
                self._objects.remove(found.uri)  # of an attempt that had more rows
        return sum(each["rows"] for each in files.values()), {"files": [*files.values()]}


def _partition(target: str, dataset: str) -> str:
    """Return the partition of a dataset, escaped; twice in a `file:` URI, which is itself unescaped."""
    escaped = quote(dataset, safe="")
    return f"dataset={quote(escaped) if target.startswith('file:') else escaped}"


def _in_files(parts: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    held: list[pl.DataFrame] = []
    for part in parts:
        held.append(part)
        if sum(each.estimated_size() for each in held) >= _FILE_BYTES:
            yield pl.concat(held)
            held = []
    if sum(map(len, held)):
        yield pl.concat(held)
