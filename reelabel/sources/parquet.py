"""Videos in a binary column of a Parquet file: `part-0.parquet#column=mp4&row=17`.

A value cannot be read by range: the column of its row group is read once, sequentially, and its values are stored one
after another in an unnamed file, for all jobs. The sizes of the values are saved as an index.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from contextlib import contextmanager
from itertools import accumulate
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

import numpy as np

from reelabel import arrow as pa
from reelabel.disk import disk_errors, temporary_root
from reelabel.errors import ArchiveUnreadableError, MemberMissingError, VideoEmptyError, VideoRefusedError
from reelabel.optional import require
from reelabel.sources.members import VERSION_MARK, Content, IndexStore, RangedFile, SavedIndexes, SingleFlightCache
from reelabel.sources.object_info import MemberUri, redact_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from reelabel.sources.source import Source

    Sizes = npt.NDArray[np.int64]

PARQUET_SUFFIX = ".parquet"
LARGE_GROUP_BYTES = 256 * 1024**2
MAX_GROUP_BYTES = 16 * 1024**3
_KEPT_GROUPS = 8
_KEPT_FOOTERS = 64
_KEPT_SIZES = 4096
_BATCH_BYTES = 16 * 1024**2
_BUFFER_BYTES = 1024**2
_BLOCK_BYTES = 256 * 1024
_NULL = -1
_MAX_DIGITS = 18
_FORM = "write FILE.parquet#column=NAME&row=NUMBER"


class _Place(NamedTuple):
    """A row of a column: its number within its row group, and the number of rows there.

    `group_bytes` is the uncompressed size of the column in the row group, as the file states it.
    """

    path: str
    group: int
    row: int
    rows: int
    group_bytes: int


class ParquetRows:
    """Values of binary columns. Thread-safe."""

    def __init__(self, store: IndexStore | None) -> None:
        self._footers = SingleFlightCache[Any](_KEPT_FOOTERS)
        self._groups = SingleFlightCache[_Values](_KEPT_GROUPS)
        self._sizes = SavedIndexes["Sizes"](
            store, encode=lambda sizes: sizes.astype("<i8").tobytes(), decode=_decode, keep=_KEPT_SIZES
        )

    def open(self, source: Source, uri: MemberUri) -> Content:
        """Find a value.

        Raises VideoRefusedError if the URI does not name a row of a binary column, VideoEmptyError if the value is
        null, and ArchiveUnreadableError if the file is damaged, or its row group is too large.
        """
        column, row = _parse(uri)
        with _as_damage(source):
            place = _locate(self._footer(source), source, column, row)
        sizes = self._sizes.get(source, lambda: self._values(source, place).sizes, part=f"{place.path}/{place.group}")
        if len(sizes) != place.rows:
            raise _damaged(source, f"row group {place.group} has {len(sizes):,} of {place.rows:,} rows")
        if sizes[place.row] == _NULL:
            raise VideoEmptyError(
                f"Row {row} of column {column} in {redact_uri(uri.archive)} is null, so it has no video."
            )
        return Content(
            size=int(sizes[place.row]),
            version=f"{place.path.replace(VERSION_MARK, '%23')}@{row}",
            read=lambda start, size: self._values(source, place).read(place.row, start, size),
            copy=lambda: self._values(source, place).pieces(place.row),
            note=f"row group {place.group} was read for it, with {place.group_bytes:,} bytes in column {place.path}"
            if place.group_bytes >= LARGE_GROUP_BYTES
            else "",
        )

    def _footer(self, source: Source) -> Any:  # noqa: ANN401 - pyarrow has no types
        def read() -> Any:  # noqa: ANN401
            return _open(source).metadata

        return self._footers.get((source.info.uri, source.info.fingerprint), read)

    def _values(self, source: Source, place: _Place) -> _Values:
        key = source.info.uri, source.info.fingerprint, place.path, place.group

        def read() -> _Values:
            with _as_damage(source):
                return _copy_group(source, self._footer(source), place)

        return self._groups.get(key, read)


class _Values:
    """The values of one column in one row group, one after another in an unnamed file."""

    def __init__(self, file: IO[bytes], sizes: Sizes) -> None:
        self._file = file
        self._starts = np.cumsum(np.maximum(sizes, 0)) - np.maximum(sizes, 0)
        self.sizes = sizes

    def read(self, row: int, start: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, int(self._starts[row]) + start)

    def pieces(self, row: int) -> Iterator[bytes]:
        for start in range(0, int(self.sizes[row]), _BATCH_BYTES):
            yield self.read(row, start, min(_BATCH_BYTES, int(self.sizes[row]) - start))


def _parse(uri: MemberUri) -> tuple[str, int]:
    values = dict(parse_qsl(uri.fragment, keep_blank_values=True))
    row = values.get("row", "")
    if values.keys() != {"column", "row"} or not values["column"]:
        raise VideoRefusedError(f"{redact_uri(uri.archive)}#{uri.fragment} does not name a column and a row; {_FORM}.")
    if not (row.isascii() and row.isdecimal() and len(row) <= _MAX_DIGITS):
        raise VideoRefusedError(
            f"{redact_uri(uri.archive)}#{uri.fragment} does not name a row by its number, from 0; {_FORM}."
        )
    return values["column"], int(row)


def _open(source: Source, metadata: Any = None) -> Any:  # noqa: ANN401
    parquet = require("pyarrow.parquet", extra="arrow", purpose="A video in a Parquet file")  # slow to import

    # Without pre_buffer and with a buffer, pages are read one after another, not a whole column at once.
    file = RangedFile(source, block_bytes=_BLOCK_BYTES)
    return parquet.ParquetFile(file, metadata=metadata, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _locate(metadata: Any, source: Source, column: str, row: int) -> _Place:  # noqa: ANN401
    leaf = _find_leaf(metadata, source, column)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    ends = list(accumulate(group.num_rows for group in groups))
    total = ends[-1] if ends else 0
    if row >= total:
        raise MemberMissingError(
            f"There is no row {row} in {redact_uri(source.info.uri)}, which has {total:,}, from 0."
        )
    number = bisect_right(ends, row)
    rows = groups[number].num_rows
    chunk = groups[number].column(leaf)
    if chunk.total_uncompressed_size > MAX_GROUP_BYTES:
        raise _damaged(
            source,
            f"row group {number} has {chunk.total_uncompressed_size:,} bytes in column {column}, which is read as a "
            "whole; write smaller row groups",
        )
    path = metadata.schema.column(leaf).path
    return _Place(path, number, row - (ends[number] - rows), rows, chunk.total_uncompressed_size)


def _find_leaf(metadata: Any, source: Source, column: str) -> int:  # noqa: ANN401
    leaves = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    found = next((leaves[path] for path in (column, f"{column}.bytes") if path in leaves), None)
    binary = [path for path, number in leaves.items() if _is_binary(metadata.schema.column(number))]
    if found is not None and metadata.schema.column(found).path in binary:
        return found
    what = f"no column {column}" if found is None else f"a column {column}, but not of bytes"
    have = ", ".join(binary) or "none"
    raise MemberMissingError(f"{redact_uri(source.info.uri)} has {what}; its columns of bytes: {have}.")


def _is_binary(column: Any) -> bool:  # noqa: ANN401
    kind = column.physical_type, column.logical_type.type, column.max_repetition_level
    return bool(kind == ("BYTE_ARRAY", "NONE", 0))


def _copy_group(source: Source, metadata: Any, place: _Place) -> _Values:  # noqa: ANN401
    file = tempfile.TemporaryFile()  # noqa: SIM115 - kept as long as its values are
    sizes: list[int] = []
    left = MAX_GROUP_BYTES
    mean = max(1, place.group_bytes // max(1, place.rows))
    reader = _open(source, metadata)
    batches = reader.iter_batches(
        batch_size=max(1, _BATCH_BYTES // mean), row_groups=[place.group], columns=[place.path], use_threads=False
    )
    with disk_errors(temporary_root()):
        for value in (each for batch in batches for each in _values_of(batch)):
            sizes.append(_NULL if value is None else len(value))
            left -= max(0, sizes[-1])
            if left < 0:
                raise _damaged(source, f"row group {place.group} has more bytes than it states")
            file.write(value or b"")
        file.flush()
    return _Values(file, np.array(sizes, np.int64))


def _values_of(batch: pa.RecordBatch) -> Iterator[pa.Buffer | None]:
    values = batch.column(0)
    while pa.types.is_struct(values.type):
        [values] = values.flatten()
    for value in values:
        yield value.as_buffer()


def _decode(data: memoryview, _file: Source) -> Sizes:
    sizes = np.frombuffer(data, "<i8")
    if len(sizes) and sizes.min() < _NULL:
        raise ValueError("negative sizes")
    return sizes.astype(np.int64)


def _damaged(source: Source, what: str) -> ArchiveUnreadableError:
    return ArchiveUnreadableError(f"{redact_uri(source.info.uri)} cannot be read: {what}.")


@contextmanager
def _as_damage(source: Source) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise _damaged(source, f"it is damaged, or not a Parquet file ({reason})") from None
