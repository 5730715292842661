"""Rows as JSON, CSV or Parquet, written one part at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO


def write_rows(parts: Iterable[pl.DataFrame], *, form: str, sink: BinaryIO) -> None:
    """Write rows to a file, holding one part of them in memory.

    Args:
        parts: Frames with the same columns; the first may have no rows.
        form: `json`, an array of objects; `csv`, with lists as space-separated numbers; or `parquet`.
        sink: Open file; not closed here.
    """
    {"json": _write_json, "csv": _write_csv, "parquet": _write_parquet}[form](parts, sink)


def _write_json(parts: Iterable[pl.DataFrame], sink: BinaryIO) -> None:
    sink.write(b"[")
    separator = b""
    for part in parts:
        if part.height:
            sink.write(separator + part.write_json().encode()[1:-1])
            separator = b",\n"
    sink.write(b"]\n")


def _write_csv(parts: Iterable[pl.DataFrame], sink: BinaryIO) -> None:
    for number, part in enumerate(parts):
        lists = part.with_columns(pl.col(pl.List(pl.Float64)).cast(pl.List(pl.String)).list.join(" "))
        sink.write(lists.write_csv(include_header=number == 0).encode())  # Polars raises pipe errors without an errno


def _write_parquet(parts: Iterable[pl.DataFrame], sink: BinaryIO) -> None:
    writer = None
    for part in parts:
        # Plain strings, not Polars' string views, for older readers of Parquet.
        table = part.to_arrow(compat_level=pl.CompatLevel.oldest())
        writer = writer or pq.ParquetWriter(sink, table.schema, compression="zstd")
        if part.height:
            writer.write_table(table)
    if writer:
        writer.close()
