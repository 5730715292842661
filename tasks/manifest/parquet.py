"""Read a manifest's Parquet files in batches of rows."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from os import SEEK_END
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa

from infra.errors import ManifestError, ManifestMissingError
from infra.prefetch import prefetch
from infra.temporary import temporary_folder
from infra.text_bounds import MAX_TEXT
from reelabel.errors import ObjectMissingError
from reelabel.sources.object_info import absolute_uri
from reelabel.text import on_one_line, read_error, shorten
from tasks.manifest.cells import bytes_to_id, parse_list
from tasks.manifest.location import resolve_manifest_files
from tasks.manifest.row_batches import (
    BATCH_BYTES,
    UNREADABLE,
    ParquetTable,
    plain_schema,
    shorten_texts,
)
from tasks.manifest.schema import COLUMNS, MAX_CHARACTERS, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from reelabel.sources.object_store import ObjectStore

_BATCH_ROWS = 65_536
_SIMILARITY = 0.85  # of difflib, from which a name is taken for a misspelling
_IDS_AT_ONCE = 16 * _BATCH_ROWS
# The magic number at both ends of a file, and that of one with an encrypted footer.
_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
# Hive's name for null in the name of a folder.
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFiles:
    uri: str  # URI given by the user
    rows: int
    size_bytes: int  # uncompressed size of the manifest's columns, as the files state it
    empty: pl.DataFrame  # an empty frame with every manifest column that a file has, of a type common to all files
    paths: dict[str, Path]  # local files by URI, in the manifest's order

    def batches(self, *, only: npt.NDArray[np.bool_] | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows, or those that `only` selects, in order, in batches of bounded size with the same columns.

        Raises:
            ManifestError: A file is damaged, or was replaced by one with other rows.
        """
        gathered, start = [self.empty], 0
        for uri, path in self.paths.items():
            with _opened(uri, path) as table, _reading(uri, path):
                for batch in prefetch(table.batches(_columns(table), max_rows=_BATCH_ROWS)):
                    if start + len(batch) > self.rows:
                        raise _replaced(self.uri)
                    # Filter before converting; gather the wanted rows of several batches.
                    wanted = batch if only is None else batch.filter(pa.array(only[start : start + len(batch)]))
                    start += len(batch)
                    gathered.append(_frame(uri, wanted))
                    rows, size_bytes = sum(map(len, gathered)), sum(each.estimated_size() for each in gathered)
                    if start == self.rows or rows >= _BATCH_ROWS / 2 or size_bytes >= BATCH_BYTES / 2:
                        yield pl.concat(gathered, how="diagonal_relaxed")
                        gathered = [self.empty]
        if start < self.rows:
            raise _replaced(self.uri)

    def ids(self) -> Iterator[pl.DataFrame]:
        """Yield the column `job_id`, in larger batches; null where a file has none."""
        for uri, path in self.paths.items():
            with _opened(uri, path) as table, _reading(uri, path):
                for batch in prefetch(table.batches(["job_id"], max_rows=_IDS_AT_ONCE)):
                    nulls = pl.repeat(None, len(batch), dtype=pl.String, eager=True)
                    found = _frame(uri, batch)
                    yield found.select("job_id") if "job_id" in found.columns else nulls.to_frame("job_id")


def _replaced(uri: str) -> ManifestError:
    return ManifestError(f"{uri} was replaced while it was being read; run again once it is complete.")


@contextmanager
def open_manifest(uri: str, objects: ObjectStore, *, questions: bool = True) -> Iterator[ManifestFiles]:
    """Open a Parquet file, or a glob of them; remote files are copied to a temporary folder while it is open.

    Raises:
        ManifestError: No file exists, or one is not Parquet; a file has no manifest column, a duplicate one, or one
            that cannot be read; the files' types are incompatible; or, with `questions`, `choices` or `schema` is
            misspelt, or only some files have `choices`.
    """
    with temporary_folder("manifest") as folder:
        paths: dict[str, Path] = {}
        rows, size_bytes, columns = 0, 0, []
        for number, part in enumerate(resolve_manifest_files(uri, objects)):
            paths[part] = _local(part, objects, folder / f"{number}.parquet")
            with _opened(part, paths[part]) as table:
                rows += table.file.metadata.num_rows
                size_bytes += table.stated_bytes(_columns(table))
                columns.append(_empty(part, table))
                if questions:
                    _refuse_misspelt(part, table)
        if questions:
            _require_choices_in_all(uri, dict(zip(paths, columns, strict=True)))
        try:
            empty = pl.concat(columns, how="diagonal_relaxed")
        except pl.exceptions.PolarsError as error:
            raise ManifestError(
                f"The files of {uri} have incompatible column types: {on_one_line(str(error))}."
            ) from None
        yield ManifestFiles(uri=uri, rows=rows, size_bytes=size_bytes, empty=empty, paths=paths)


def _refuse_misspelt(uri: str, table: ParquetTable) -> None:
    others = {name.casefold(): name for name in table.names if name not in COLUMNS}
    for name in ("choices", "schema"):  # a job without them gets another kind of answer
        if name not in table.names and (meant := get_close_matches(name, others, 1, _SIMILARITY)):
            raise ManifestError(
                f"{uri} has no column {name}, but {others[meant[0]]}: rename it to {name}, or, if it is something "
                "else, to another name."
            )


def _require_choices_in_all(uri: str, columns: dict[str, pl.DataFrame]) -> None:
    """Refuse files of which only some have choices: the jobs of the others would be answered in words."""
    without = [part for part, frame in columns.items() if "choices" not in frame.columns]
    if 0 < len(without) < len(columns):
        raise ManifestError(
            f"{without[0]} has no column choices, which other files of {uri} have; add it, with nulls for answers in "
            "words."
        )


def _local(uri: str, objects: ObjectStore, copy: Path) -> Path:
    path = objects.local_path(uri)
    try:
        if path is None:
            objects.download(uri, copy)
            return copy
        objects.stat(uri)
    except ObjectMissingError:
        raise ManifestMissingError(
            f"There is no manifest file at {uri}; to use all files of a folder, write folder/*.parquet."
        ) from None
    return path


@contextmanager
def _opened(uri: str, path: Path) -> Iterator[ParquetTable]:
    with ExitStack() as stack:
        with _reading(uri, path):
            table = stack.enter_context(ParquetTable(path, uri=uri))
        yield table


@contextmanager
def _reading(uri: str, path: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise ManifestError(f"{uri} {_why_unreadable(path, error)}.") from None


def _why_unreadable(path: Path, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return f"cannot be read: {read_error(error)}"
    with path.open("rb") as file:
        first, size = file.read(len(_MAGIC)), file.seek(0, SEEK_END)
        file.seek(max(0, size - len(_MAGIC)))
        last = file.read()
    if not size:
        return "is empty, without even a header; write it again"
    if _ENCRYPTED in {first, last} or "decrypt" in str(error):
        return "is encrypted; write it without Parquet's encryption"
    if first != _MAGIC:
        return "is not a Parquet file; `reelabel manifest import` converts CSV to Parquet"
    if last != _MAGIC:
        return "is cut short: its end is missing; copy or write it again"
    return f"is damaged ({shorten(on_one_line(str(error)).strip())}); copy or write it again"


def _empty(uri: str, table: ParquetTable) -> pl.DataFrame:
    names = _columns(table)
    if not names:
        found = ", ".join(table.names) or "no columns"
        raise ManifestError(f"{uri} has no manifest columns; it needs {', '.join(REQUIRED)}, and has {found}.")
    for name in names:
        if names.count(name) > 1:
            raise ManifestError(f"{uri} has duplicate columns {name}; remove all but one.")
    rows = plain_schema(table.file.schema_arrow).empty_table().select(names)
    try:
        return _frame(uri, rows)
    except (pl.exceptions.PanicException, pl.exceptions.ComputeError):  # for example, of an unknown time zone
        types = ", ".join(f"{field.name} ({field.type})" for field in rows.schema)
        raise ManifestError(f"{uri} has a column whose type cannot be read, one of: {types}.") from None


def _columns(table: ParquetTable) -> list[str]:
    return [name for name in table.names if name in COLUMNS]


def _frame(uri: str, rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """Convert rows to a frame, with the columns in the names of the file's folders, as Hive and Spark write them."""
    pairs = (folder.partition("=") for folder in absolute_uri(uri).split("/")[:-1])
    partitions = {name: None if value == _NO_PARTITION else unquote(value) for name, _, value in pairs}
    columns = {
        name: pa.repeat(pa.scalar(value, pa.string()), rows.num_rows)
        for name, value in partitions.items()
        if name in COLUMNS
    }
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.validate(full=True)
            text, limit = _as_text(name, column), MAX_CHARACTERS.get(name, MAX_TEXT)
            columns[name] = text if name == "choices" else shorten_texts(text, limit)  # a text may list many choices
        except pa.ArrowInvalid:
            raise ManifestError(
                f"{uri} has a text that is not UTF-8 in its column {name}; write the file again with texts in UTF-8."
            ) from None
    if "choices" in columns and _is_text(columns["choices"].type):
        lists = (None if text is None else _choices(text) for text in columns["choices"].to_pylist())
        columns["choices"] = pa.array(lists, pa.list_(pa.string()))
    frame = pl.from_arrow(pa.table(columns))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _as_text(name: str, column: Any) -> Any:  # noqa: ANN401 - of a batch, or of a table
    """Convert extension types and bytes to texts; an id that is not a text, such as a hash, becomes hexadecimal."""
    kind = column.type
    if isinstance(kind, pa.UuidType):
        return pa.array([value and str(value) for value in column.to_pylist()], pa.string())
    if isinstance(kind, pa.BaseExtensionType):  # as of JSON, which is a text
        return column.cast(kind.storage_type)
    if name == "job_id" and _is_binary(kind):
        return pa.array([value and bytes_to_id(value) for value in column.to_pylist()], pa.string())
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if _is_binary(kind.value_type if is_list else kind):
        return column.cast(pa.list_(pa.string()) if is_list else pa.string())
    return column


def _choices(text: str) -> list[str]:
    try:
        return parse_list(text, "choices")
    except ValueError:
        return [text]  # too few choices, so that the rules report it


def _is_binary(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary))


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))
