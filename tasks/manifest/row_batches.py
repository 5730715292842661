"""Rows of Parquet files in batches of bounded size, however well their texts are compressed."""

from __future__ import annotations

from contextlib import ExitStack
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from infra.errors import ManifestError
from infra.text_bounds import MAX_INLINE, MAX_TEXT
from tasks.manifest.parquet_pages import read_pages
from tasks.manifest.schema import MAX_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    from tasks.manifest.parquet_pages import ByteFile

# The signature in the footer of a file with encrypted columns; the footer's length and the magic number after it.
_SIGNATURE_BYTES, _TAIL_BYTES = 28, 8
BATCH_BYTES = 16 * 1024**2
_BYTES_PER_CHARACTER = 4
# A page is held in memory as a whole. PyArrow writes 1,024 texts to a page, however long; others about 1 MiB.
_MAX_PAGE_BYTES, _MAX_INLINE_PAGE_BYTES = 128 * 1024**2, 256 * 1024**2
# With this encoding, each text may be as long as its whole page.
_PREFIXES = "DELTA_BYTE_ARRAY"
_TEXTS = {"STRING", "NONE", "ENUM", "JSON"}
_BUFFER_BYTES = 1024**2
_MIB = 1024**2
# What reading a damaged file raises; the last for the names of columns.
UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)


class ParquetTable:
    """A Parquet file whose rows are read in batches of bounded size; a context manager.

    Attributes:
        file: The open file; columns of texts with a dictionary are read as dictionaries.
    """

    def __init__(self, source: Path | ByteFile, *, uri: str) -> None:
        """Open a file; the URI is for messages.

        Raises:
            pyarrow.ArrowException: It is not a Parquet file, or is encrypted.
        """
        self._uri = uri
        self._closing = ExitStack()
        # pyarrow reads a path faster than a Python file.
        self._bytes = self._closing.enter_context(source.open("rb")) if isinstance(source, Path) else source
        try:
            self.file = self._closing.enter_context(_open(source, self._bytes))
        except BaseException:
            self._closing.close()
            raise
        self.names: list[str] = self.file.schema_arrow.names

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    def batches(
        self, columns: Sequence[str], *, max_rows: int, max_characters: Mapping[str, int] = MAX_CHARACTERS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, in batches of at most `max_rows`, and about 16 MiB unless one row has more.

        Texts of dictionaries are cut to one character more than `max_characters` allows their column, or 100,000.

        Raises:
            ManifestError: The header of a page states a size above the limit.
            pyarrow.ArrowException: The file is damaged.
        """
        for number in range(self.file.num_row_groups):
            group = self.file.metadata.row_group(number)
            wanted = [chunk for chunk in _chunks(group) if _column_of(chunk, columns)]
            names = (_column_of(chunk, columns) for chunk in wanted)
            limits = [max_characters.get(name, MAX_TEXT) for name in names]
            row_bytes = sum(map(self._max_bytes, wanted, limits)) / max(1, group.num_rows)
            rows = max(1, min(max_rows, int(BATCH_BYTES / max(1.0, row_bytes))))
            for batch in self.file.iter_batches(rows, row_groups=[number], columns=columns):
                yield from self._taken_apart(batch, max_characters)

    def stated_bytes(self, columns: Sequence[str]) -> int:
        """Return the uncompressed size of columns that the file states."""
        groups = map(self.file.metadata.row_group, range(self.file.num_row_groups))
        chunks = (chunk for group in groups for chunk in _chunks(group) if _column_of(chunk, columns))
        return sum(chunk.total_uncompressed_size for chunk in chunks)

    @staticmethod
    def _taken_apart(batch: pa.RecordBatch, max_characters: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
        if not batch.num_columns:
            yield batch
            return
        limits = [max_characters.get(name, MAX_TEXT) for name in batch.schema.names]
        columns = map(_shortened, batch.columns, limits)
        shared = pa.RecordBatch.from_arrays([*columns], schema=batch.schema)
        step = max(1, int(len(batch) / max(1, sum(map(_plain_bytes, shared.columns)) / BATCH_BYTES)))
        for start in range(0, len(batch), step):
            # Not a slice: it would keep all values of a list, on which Polars fails.
            rows = pa.array(range(start, min(start + step, len(batch))))
            piece = shared if step >= len(batch) else shared.take(rows)
            yield piece.cast(plain_schema(piece.schema))

    def _max_bytes(self, chunk: parquet.ColumnChunkMetaData, max_characters: int) -> float:
        """Return an upper bound of a column's size in a row group: as if all pages were as dense as the densest."""
        limit_bytes = _MAX_INLINE_PAGE_BYTES if max_characters == MAX_INLINE else _MAX_PAGE_BYTES
        densest = 0.0
        for page in read_pages(self._bytes, chunk):
            if page.size_bytes > limit_bytes:
                raise ManifestError(
                    f"{self._uri} has a page of {page.size_bytes / _MIB:,.0f} MiB in its column {_root(chunk)}, more "
                    f"than {limit_bytes // _MIB}; shorten its texts, or write it again with smaller pages."
                )
            if page.is_data:
                repeats = 1 if _PREFIXES in chunk.encodings else max(1, page.values)
                densest = max(densest, page.size_bytes / repeats)
        return densest * int(chunk.num_values)


def _open(source: Path | ByteFile, data: ByteFile) -> parquet.ParquetFile:
    with parquet.ParquetFile(source, pre_buffer=False) as file:
        metadata, schema = file.metadata, file.schema
    data.seek(-_TAIL_BYTES, SEEK_END)
    footer_bytes = int.from_bytes(data.read(_TAIL_BYTES // 2), "little")
    if footer_bytes - metadata.serialized_size == _SIGNATURE_BYTES:
        raise pa.ArrowInvalid("Its columns must be decrypted.")  # pyarrow would end the process
    leaves = map(schema.column, range(len(schema)))
    texts = {leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type in _TEXTS}
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    shared = {chunk.path_in_schema for group in groups for chunk in _chunks(group) if chunk.has_dictionary_page}
    return parquet.ParquetFile(
        source, metadata=metadata, pre_buffer=False, buffer_size=_BUFFER_BYTES, read_dictionary=[*shared & texts]
    )


def shorten_texts(texts: Any, max_characters: int) -> Any:  # noqa: ANN401 - of a batch, or of a table
    """Cut texts to at most `max_characters` + 1 characters, which are still too long for the rules."""
    max_bytes = _BYTES_PER_CHARACTER * (max_characters + 1)
    is_text = pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)
    if not (is_text or pa.types.is_binary(texts.type)) or (pc.max(pc.binary_length(texts)).as_py() or 0) <= max_bytes:
        return texts
    return pc.utf8_slice_codeunits(texts, 0, max_characters + 1) if is_text else pc.binary_slice(texts, 0, max_bytes)


def _shortened(array: pa.Array, max_characters: int) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(array.indices, shorten_texts(array.dictionary, max_characters))
    if pa.types.is_struct(kind):
        own, parts = 1, [array.field(number) for number in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        own, parts = 2, [array.values]
    else:
        return array
    children = [_shortened(part, max_characters) for part in parts]
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:own], children=children)


def plain_schema(schema: pa.Schema) -> pa.Schema:
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
    kind = array.type
    if pa.types.is_dictionary(kind):
        return len(array) * (pc.max(pc.binary_length(array.dictionary)).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(map(_plain_bytes, array.flatten()))
    return _plain_bytes(array.flatten()) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else array.nbytes


def _chunks(group: parquet.RowGroupMetaData) -> Iterator[parquet.ColumnChunkMetaData]:
    return map(group.column, range(group.num_columns))


def _root(chunk: parquet.ColumnChunkMetaData) -> str:
    return str(chunk.path_in_schema.partition(".")[0])


def _column_of(chunk: parquet.ColumnChunkMetaData, columns: Sequence[str]) -> str:
    """Return which of `columns` a leaf belongs to; empty if none."""
    path = chunk.path_in_schema
    return next((name for name in columns if path == name or path.startswith(f"{name}.")), "")
