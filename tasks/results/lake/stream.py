"""Rows of a run as a stream of Arrow batches, for tables of a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date


class RowStream:
    """Rows with the column `date`, of which one part is in memory.

    Attributes:
        schema: Their columns.
        count: Number of rows that were read so far.
    """

    def __init__(self, parts: Iterator[pl.DataFrame], date: date) -> None:
        """Read the first part, which has columns but no rows."""
        self._parts = parts
        self._date = date
        self.schema: pa.Schema = self._to_arrow(next(parts)).schema
        self.count = 0

    def read(self) -> pa.RecordBatchReader:
        """Return the stream, which can be read once."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for part in self._parts:
            self.count += len(part)
            yield from self._to_arrow(part).to_batches()

    def _to_arrow(self, rows: pl.DataFrame) -> pa.Table:
        return rows.with_columns(pl.lit(self._date).alias("date")).to_arrow(compat_level=pl.CompatLevel.oldest())
