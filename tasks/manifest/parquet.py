"""Read a manifest's Parquet files in batches of rows."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyarrow import parquet

from infra.errors import ManifestError, ManifestMissingError
from infra.prefetch import prefetch
from reelabel.errors import ObjectMissingError
from reelabel.sources.object_info import path_advice
from reelabel.temporary import temporary_folder
from tasks.manifest.location import resolve_manifest_files
from tasks.manifest.schema import COLUMNS, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from reelabel.sources.object_store import ObjectStore

_BATCH_ROWS = 65_536
_IDS_AT_ONCE = 16 * _BATCH_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFiles:
    """The files of an open manifest.

    Attributes:
        uri: URI given by the user.
        rows: Number of rows.
        empty: An empty frame with every manifest column that a file has, of a type common to all files.
        paths: Local files by URI, in the manifest's order.
    """

    uri: str
    rows: int
    empty: pl.DataFrame
    paths: dict[str, Path]

    def batches(self, *, only: npt.NDArray[np.bool_] | None = None) -> Iterator[pl.DataFrame]:
        """Read the rows in order, or only those that are wanted; all batches have the same columns.

        Raises:
            ManifestError: A file is damaged, or was replaced by one with other rows.
        """
        gathered, start = [self.empty], 0
        for uri, path in self.paths.items():
            with _opened(uri, path) as file, _reading(uri):
                for batch in prefetch(file.iter_batches(_BATCH_ROWS, columns=_columns(file))):
                    if start + len(batch) > self.rows:
                        raise _replaced(self.uri)
                    # Filter before converting; gather the wanted rows of several batches.
                    wanted = batch if only is None else batch.filter(pa.array(only[start : start + len(batch)]))
                    start += len(batch)
                    gathered.append(_frame_of_text(uri, wanted))
                    if start == self.rows or sum(map(len, gathered)) >= _BATCH_ROWS / 2:
                        yield pl.concat(gathered, how="diagonal_relaxed")
                        gathered = [self.empty]
        if start < self.rows:
            raise _replaced(self.uri)

    def ids(self) -> Iterator[pl.DataFrame]:
        """Read only the rows' ids, in larger batches; null where a file has no ids.

        Raises:
            ManifestError: A file is damaged.
        """
        for uri, path in self.paths.items():
            with _opened(uri, path) as file, _reading(uri):
                for batch in prefetch(file.iter_batches(_IDS_AT_ONCE, columns=["job_id"])):
                    nulls = pl.repeat(None, len(batch), dtype=pl.String, eager=True)
                    yield _frame_of_text(uri, batch) if batch.num_columns else nulls.to_frame("job_id")


def _replaced(uri: str) -> ManifestError:
    return ManifestError(f"{uri} was replaced while it was being read; run again once it is complete.")


@contextmanager
def open_manifest(uri: str, objects: ObjectStore) -> Iterator[ManifestFiles]:
    """Open a Parquet file, or a glob of them; remote files are copied to a temporary folder while it is open.

    Raises:
        ManifestError: No file exists, or one is not Parquet; a file has no manifest column, a duplicate one, or one
            that cannot be read; or the files' types are incompatible.
    """
    with temporary_folder("manifest") as folder:
        paths: dict[str, Path] = {}
        rows, columns = 0, []
        for number, part in enumerate(resolve_manifest_files(uri, objects)):
            paths[part] = _local(part, objects, folder / f"{number}.parquet")
            with _opened(part, paths[part]) as file:
                rows += file.metadata.num_rows
                columns.append(_empty(part, file))
        try:
            empty = pl.concat(columns, how="diagonal_relaxed")
        except pl.exceptions.PolarsError as error:
            raise ManifestError(f"The files of {uri} have incompatible column types: {error}.") from None
        yield ManifestFiles(uri=uri, rows=rows, empty=empty, paths=paths)


def _local(uri: str, objects: ObjectStore, copy: Path) -> Path:
    path = objects.local_path(uri)
    try:
        if path is None:
            objects.download(uri, copy)
            return copy
        objects.stat(uri)
    except ObjectMissingError:
        advice = path_advice(uri) or "; to use all files of a folder, write folder/*.parquet"
        raise ManifestMissingError(f"There is no manifest file at {uri}{advice}.") from None
    return path


@contextmanager
def _opened(uri: str, path: Path) -> Iterator[parquet.ParquetFile]:
    with ExitStack() as stack:
        with _reading(uri):
            file = stack.enter_context(parquet.ParquetFile(path))
        yield file


@contextmanager
def _reading(uri: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError):
        raise ManifestError(
            f"{uri} is not a Parquet file; `reelabel manifest import` converts CSV to Parquet."
        ) from None


def _empty(uri: str, file: parquet.ParquetFile) -> pl.DataFrame:
    names = _columns(file)
    if not names:
        found = ", ".join(file.schema_arrow.names) or "no columns"
        raise ManifestError(f"{uri} has no manifest columns; it needs {', '.join(REQUIRED)}, and has {found}.")
    for name in names:
        if names.count(name) > 1:
            raise ManifestError(f"{uri} has duplicate columns {name}; remove all but one.")
    rows = file.schema_arrow.empty_table().select(names)
    try:
        return _frame(rows)
    except (pl.exceptions.PanicException, pl.exceptions.ComputeError):  # for example, of an unknown time zone
        types = ", ".join(f"{field.name} ({field.type})" for field in rows.schema)
        raise ManifestError(f"{uri} has a column whose type cannot be read, one of: {types}.") from None


def _columns(file: parquet.ParquetFile) -> list[str]:
    """List a file's manifest columns; others are never read."""
    return [name for name in file.schema_arrow.names if name in COLUMNS]


def _frame(rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    if any(isinstance(field.type, pa.BaseExtensionType) for field in rows.schema):  # as of JSON, which is a text
        rows = rows.cast(pa.schema([(field.name, _storage(field.type)) for field in rows.schema]))
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _frame_of_text(uri: str, rows: pa.RecordBatch) -> pl.DataFrame:
    """Convert rows.

    Raises:
        ManifestError: They hold bytes in place of a text, which some programs write unchecked.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise ManifestError(
                f"{uri} has a text that is not UTF-8 in its column {name}; write the file again with texts in UTF-8."
            ) from None
    return _frame(rows)
