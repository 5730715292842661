"""Rows that may not fit into memory, partitioned into files on disk."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_PART = "part"


class Spill:
    """Rows in `parts` files, in insertion order. Use it as a context manager while adding rows."""

    def __init__(self, folder: Path, *, parts: int) -> None:
        """Create an empty spill in an empty folder, which the caller removes. A partition must fit into memory."""
        self.parts = parts
        self.rows = Counter[int]()
        self.size_bytes = Counter[int]()
        self._folder = folder
        self._files: dict[int, pa.RecordBatchStreamWriter] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._open.close()

    def add(self, frame: pl.DataFrame, part: pl.Expr | pl.Series) -> None:
        """Add rows; `part` is, or computes, the number of each row's partition, from 0."""
        if self.parts == 1:
            self._write(0, frame)
            return
        numbered = frame.with_columns(part.cast(pl.UInt32).alias(_PART))
        for (number,), rows in numbered.partition_by(_PART, include_key=False, as_dict=True).items():
            self._write(int(number), rows)

    def read(self, part: int) -> pl.DataFrame | None:
        path = self._path(part)
        return pl.read_ipc_stream(path).rechunk() if path.exists() else None

    def batches(self, part: int) -> Iterator[pl.DataFrame]:
        """Yield the rows of a partition as they were added, a batch at a time."""
        if self.rows[part]:
            with pa.ipc.open_stream(pa.OSFile(str(self._path(part)))) as reader:
                for batch in reader:
                    yield pl.DataFrame(pl.from_arrow(batch))

    def remove(self, part: int) -> None:
        """Remove a partition, to free its disk space."""
        self._path(part).unlink(missing_ok=True)
        del self.rows[part], self.size_bytes[part]

    def _write(self, part: int, frame: pl.DataFrame) -> None:
        self.rows[part] += len(frame)
        self.size_bytes[part] += int(frame.estimated_size())
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        if part not in self._files:
            writer = pa.ipc.new_stream(self._path(part), table.schema, options=_LZ4)
            self._files[part] = self._open.enter_context(writer)
        self._files[part].write_table(table)

    def _path(self, part: int) -> Path:
        return self._folder / f"{part:05}.arrows"
