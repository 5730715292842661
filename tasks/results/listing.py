"""The audit's list of ids, as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyarrow import csv, parquet
from sqlalchemy import Text, column, select, table

from infra.copy_out import copy_query
from infra.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

_COLUMNS = {"ending": pa.string(), "job_id": pa.string(), "code": pa.string()}
_SCHEMA = pa.schema(_COLUMNS.items())
_JUDGED = table("judged", *(column(name, Text) for name in _COLUMNS))
_ROWS = select(*_JUDGED.c).order_by(_JUDGED.c.ending, _JUDGED.c.job_id)
# For `backfill --ids-file`, which takes ids of the manifest, each once.
_IDS = select(_JUDGED.c.job_id).where(_JUDGED.c.ending.not_in(("orphaned", "repeated"))).distinct().order_by("job_id")


def check_listing(path: Path) -> None:
    """Make sure that a list can be written as its name says.

    Raises:
        ConfigurationError: The name ends otherwise.
    """
    if path.suffix not in {".parquet", ".csv", ".txt"}:
        raise ConfigurationError(f"--list {path} is no kind of list; end the name in .parquet, .csv or .txt.")


def write_listing(connection: Connection, path: Path) -> None:
    """Write what the temporary table `judged` has.

    Parquet and CSV have the columns ending (missing, failed, doubled, stale, repeated, orphaned), job_id
    and code; text has one id a line, of those jobs of the manifest that can be asked again.

    Args:
        connection: The audit's.
        path: See `check_listing`.
    """
    if path.suffix == ".txt":
        with path.open("w", encoding="utf-8") as file:
            for frame in copy_query(connection, _IDS, {"job_id": pa.string()}):
                file.writelines(f"{job_id}\n" for job_id in frame["job_id"].to_list())
        return
    writer = parquet.ParquetWriter if path.suffix == ".parquet" else csv.CSVWriter
    with writer(path, _SCHEMA) as file:
        for frame in copy_query(connection, _ROWS, _COLUMNS):
            file.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(_SCHEMA))
