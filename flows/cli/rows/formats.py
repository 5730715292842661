"""Rows as JSON, CSV and Parquet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

from flows.cli.console import Sink, require_format, text_sink
from infra.formulas import without_formulas
from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_format(form: str, *, raw: bool) -> None:
    require_format(form, "table", "json", "csv", "parquet")
    if raw and form != "csv":
        raise ConfigurationError("--raw is for --format csv; the other formats never change texts.")


def write_rows(parts: Iterable[pl.DataFrame], *, form: str, sink: Sink, raw: bool = False) -> None:
    """Write parts of rows to a sink, with one part in memory; the first part may be empty.

    JSON is an array of objects; CSV has lists as space-separated numbers, and no text that is a formula
    (`without_formulas`), unless `raw`.
    """
    shown = parts if raw or form != "csv" else map(without_formulas, parts)
    {"json": _write_json, "csv": _write_csv, "parquet": _write_parquet}[form](shown, sink)


def _write_json(parts: Iterable[pl.DataFrame], sink: Sink) -> None:
    sink.write(b"[")
    separator = b""
    for part in parts:
        if part.height:
            sink.write(separator + part.write_json().encode()[1:-1])
            separator = b",\n"
    sink.write(b"]\n")


def _write_csv(parts: Iterable[pl.DataFrame], sink: Sink) -> None:
    for number, part in enumerate(parts):
        lists = part.with_columns(pl.col(pl.List(pl.Float64)).cast(pl.List(pl.String)).list.join(" "))
        sink.write(lists.write_csv(include_header=number == 0).encode())  # Polars raises pipe errors without an errno


def _write_parquet(parts: Iterable[pl.DataFrame], sink: Sink) -> None:
    writer = None
    for part in parts:
        # Plain strings, not Polars' string views, for older readers of Parquet.
        table = part.to_arrow(compat_level=pl.CompatLevel.oldest())
        writer = writer or pq.ParquetWriter(sink, table.schema, compression="zstd")
        if part.height:
            writer.write_table(table)
    if writer:
        writer.close()


def print_rows(parts: Iterable[pl.DataFrame], *, form: str, raw: bool) -> None:
    sink = sys.stdout.buffer if form == "parquet" else text_sink()
    write_rows(parts, form=form, sink=sink, raw=raw)
    sys.stdout.flush()  # an error at exit, such as of a full disk, would be lost
