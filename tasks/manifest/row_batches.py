"""Rows of Parquet files in batches of bounded size, however well their texts are compressed."""

from __future__ import annotations

import math
from os import SEEK_END
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from infra.errors import ManifestError
from reelabel.texts import MAX_INLINE
from tasks.manifest.schema import MAX_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# Of the footer of a file with encrypted columns; and of its length and the mark that follow it.
_SIGNATURE_BYTES, _TAIL_BYTES = 28, 8
BATCH_BYTES = 64 * 1024**2
_BYTES_PER_CHARACTER = 4
# Of a column in one row group, beside its characters: headers of pages, lengths and levels.
_OVERHEAD_BYTES, _OVERHEAD_BYTES_PER_TEXT = 1024**2, 16
# Of a column of short texts in one row group: one page may have all of it, and is held in memory as a whole.
_MOST_CHUNK_BYTES = 1024**3
_GIB = 1024**3


def open_dictionaries(path: Path) -> parquet.ParquetFile:
    """Open a file for `read_batches`: a text that many rows share is not repeated until they are taken apart.

    Raises:
        pyarrow.ArrowException: It is no Parquet file, or encrypted.
    """
    with parquet.ParquetFile(path) as file:
        metadata, schema = file.metadata, file.schema
    if _footer_bytes(path) - metadata.serialized_size == _SIGNATURE_BYTES:
        raise pa.ArrowInvalid("Its columns must be decrypted.")  # pyarrow would end the process
    texts = [column.path for column in map(schema.column, range(len(schema))) if column.logical_type.type == "STRING"]
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    shared = {chunk.path_in_schema for group in groups for chunk in _chunks(group) if chunk.has_dictionary_page}
    return parquet.ParquetFile(path, metadata=metadata, read_dictionary=[*shared.intersection(texts)])


def read_batches(
    file: parquet.ParquetFile, columns: Sequence[str], *, uri: str, most_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in order, in batches of at most `most_rows`, and about 64 MiB unless one row has more.

    Args:
        file: The file.
        columns: Columns to read.
        uri: Its URI, for messages.
        most_rows: Rows of a batch.

    Raises:
        ManifestError: By the sizes in the footer, which are looked at first, a text has too many characters.
    """
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        size_bytes = 0
        for chunk in _chunks(group):
            if _name(chunk) not in columns:
                continue
            _require_short(chunk, uri=uri)
            size_bytes += chunk.total_uncompressed_size
        row_bytes = size_bytes / max(1, group.num_rows)
        rows = max(1, min(most_rows, int(BATCH_BYTES / max(1.0, row_bytes))))
        for batch in file.iter_batches(rows, row_groups=[number], columns=columns):
            pieces = max(1, math.ceil(sum(map(_plain_bytes, batch.columns)) / BATCH_BYTES))
            step = max(1, len(batch) // pieces)
            for start in range(0, len(batch), step):
                piece = batch.slice(start, step)
                yield piece.cast(plain_schema(batch.schema)) if piece.num_columns else piece


def shorten_texts(name: str, texts: Any) -> Any:  # noqa: ANN401 - of a batch, or of a table
    """Cut valid texts that have more characters than they may to one more, for which the rules refuse them, too."""
    is_text = pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)
    if not is_text or name == "choices":  # a text of choices has several
        return texts
    most = MAX_CHARACTERS[name]
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    return pc.utf8_slice_codeunits(texts, 0, most + 1) if longest > _BYTES_PER_CHARACTER * most else texts


def _footer_bytes(path: Path) -> int:
    with path.open("rb") as file:
        file.seek(-_TAIL_BYTES, SEEK_END)
        return int.from_bytes(file.read(_TAIL_BYTES // 2), "little")


def stated_bytes(file: parquet.ParquetFile, columns: Sequence[str]) -> int:
    """Return the size of columns of a file, uncompressed, as it states it."""
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    return sum(chunk.total_uncompressed_size for group in groups for chunk in _chunks(group) if _name(chunk) in columns)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema without dictionaries."""
    return pa.schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    return kind


def _plain_bytes(array: pa.Array) -> int:
    """Return how many bytes an array has at most without dictionaries."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return len(array) * (pc.max(pc.binary_length(array.dictionary)).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(map(_plain_bytes, array.flatten()))
    return _plain_bytes(array.flatten()) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else array.nbytes


def _chunks(group: parquet.RowGroupMetaData) -> Iterator[parquet.ColumnChunkMetaData]:
    return map(group.column, range(group.num_columns))


def _name(chunk: parquet.ColumnChunkMetaData) -> str:
    return str(chunk.path_in_schema.partition(".")[0])


def _require_short(chunk: parquet.ColumnChunkMetaData, *, uri: str) -> None:
    name, size_bytes = _name(chunk), chunk.total_uncompressed_size
    most = MAX_CHARACTERS.get(name, MAX_INLINE)
    text_bytes = _BYTES_PER_CHARACTER * most + _OVERHEAD_BYTES_PER_TEXT
    if size_bytes > chunk.num_values * text_bytes + _OVERHEAD_BYTES:
        raise ManifestError(
            f"{uri} has a text of more than {most:,} characters in its column {name}, which is not read; shorten it."
        )
    if most < MAX_INLINE and size_bytes > _MOST_CHUNK_BYTES:
        raise ManifestError(
            f"{uri} has {size_bytes / _GIB:.1f} GiB of its column {name} in one row group; write it again with smaller "
            "row groups."
        )
