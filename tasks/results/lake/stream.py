"""The rows of a run as a stream of Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date


class CommitConflictError(ConfigurationError):
    """Another export has changed a table; another attempt may succeed."""


class RowStream:
    """Rows with the column `date`, of which one part is in memory. The first part has no rows.

    Attributes:
        count: Number of rows read so far.
        error: Why rows could not be read; packages report it as an error of the table that they write.
    """

    def __init__(self, parts: Iterator[pl.DataFrame], date: date) -> None:
        self._parts = parts
        self._date = date
        self.schema: pa.Schema = self._to_arrow(next(parts)).schema
        self.count = 0
        self.error: Exception | None = None

    def read(self) -> pa.RecordBatchReader:
        """Return the stream, which can be read once."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for part in self._parts:
                self.count += len(part)
                yield from self._to_arrow(part).to_batches()
        except Exception as error:
            self.error = error
            raise

    def _to_arrow(self, rows: pl.DataFrame) -> pa.Table:
        return rows.with_columns(pl.lit(self._date).alias("date")).to_arrow(compat_level=pl.CompatLevel.oldest())
