"""Rows that may not fit into memory, partitioned into files on disk."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_PART = "part"


class Spill:
    """Rows in partitions, one file each, in insertion order. Use it as a context manager while adding rows."""

    def __init__(self, folder: Path, *, parts: int) -> None:
        """Create an empty spill.

        Args:
            folder: An empty folder, which the caller removes.
            parts: Number of partitions; the rows of one must fit into memory.
        """
        self.parts = parts
        self._folder = folder
        self._files: dict[int, pa.RecordBatchStreamWriter] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Return the spill itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the files, after which they can be read."""
        self._open.close()

    def add(self, frame: pl.DataFrame, part: pl.Expr) -> None:
        """Add rows; the expression `part` computes the number of each row's partition, from 0."""
        if self.parts == 1:
            self._write(0, frame)
            return
        numbered = frame.with_columns(part.cast(pl.UInt32).alias(_PART))
        for (number,), rows in numbered.partition_by(_PART, include_key=False, as_dict=True).items():
            self._write(int(number), rows)

    def read(self, part: int) -> pl.DataFrame | None:
        """Return the rows of a partition; None if it is empty."""
        path = self._path(part)
        return pl.read_ipc_stream(path).rechunk() if path.exists() else None

    def _write(self, part: int, frame: pl.DataFrame) -> None:
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        if part not in self._files:
            writer = pa.ipc.new_stream(self._path(part), table.schema, options=_LZ4)
            self._files[part] = self._open.enter_context(writer)
        self._files[part].write_table(table)

    def _path(self, part: int) -> Path:
        return self._folder / f"{part:05}.arrows"
