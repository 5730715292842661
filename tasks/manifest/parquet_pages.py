"""Sizes of the pages of a Parquet file, from their headers, which pyarrow does not expose."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import parquet

# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_VARINTS, _MAX_BITS = (_I16, _I32, _I64), 64
_SIZES = {_BYTE: 1, _DOUBLE: 8}
_LONG_LIST = 15
# Fields of a page's header, and of the headers by kind in it, all of which begin with the number of values.
_KIND, _PLAIN_BYTES, _STORED_BYTES, _DATA, _DICTIONARY, _DATA_V2, _VALUES = 1, 2, 3, 5, 7, 8, 1
_DATA_KINDS = (0, 3)


class ByteFile(Protocol):
    """A seekable binary file."""

    def read(self, size: int = ..., /) -> bytes: ...

    def seek(self, offset: int, whence: int = ..., /) -> int: ...

    def tell(self) -> int: ...


class Page(NamedTuple):
    is_data: bool  # whether it holds values, or indices of a dictionary; otherwise it is the dictionary
    size_bytes: int  # uncompressed size, which is allocated to read it
    values: int


def read_pages(file: ByteFile, chunk: parquet.ColumnChunkMetaData) -> Iterator[Page]:
    """Yield the pages of a column in one row group; only their headers are read.

    Raises:
        pa.ArrowInvalid: A header is damaged.
    """
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    end, left = start + chunk.total_compressed_size, chunk.num_values
    while start < end and left > 0:
        file.seek(start)
        try:
            header = dict(_fields(file))
            kinds = [header[kind] for kind in (_DATA, _DICTIONARY, _DATA_V2) if kind in header]
            stored_bytes = header[_STORED_BYTES]
            page = Page(header[_KIND] in _DATA_KINDS, header[_PLAIN_BYTES], kinds[0][_VALUES] if kinds else 0)
            is_negative = min(stored_bytes, page.size_bytes, page.values) < 0
        except (LookupError, TypeError, ValueError, OverflowError, OSError, RecursionError):
            raise pa.ArrowInvalid("the header of a page cannot be read") from None
        if is_negative:
            raise pa.ArrowInvalid("a page has a negative size")
        yield page
        start = file.tell() + stored_bytes
        left -= page.values if page.is_data else 0


def _fields(file: ByteFile) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a struct by number: integers and structs; values of other types are skipped."""
    number = 0
    while head := file.read(1)[0]:
        step, kind = head >> 4, head & 0xF
        number = number + step if step else _integer(file)
        yield number, _value(file, kind)


def _value(file: ByteFile, kind: int, *, in_list: bool = False) -> Any:  # noqa: ANN401
    if kind in _VARINTS:
        return _integer(file)
    if kind == _STRUCT:
        return dict(_fields(file))
    if kind in {_LIST, _SET}:
        head = file.read(1)[0]
        length = head >> 4 if head >> 4 < _LONG_LIST else _varint(file)
        for _ in range(length):
            _value(file, head & 0xF, in_list=True)
    elif kind == _BINARY:
        file.seek(_varint(file), os.SEEK_CUR)
    elif kind in _SIZES or (kind in {_TRUE, _FALSE} and in_list):
        size = _SIZES.get(kind, 1)
        file.read(size)[size - 1]
    elif kind not in {_TRUE, _FALSE}:  # outside lists, these types are the values
        raise ValueError(f"unknown kind {kind}")
    return None


def _integer(file: ByteFile) -> int:
    value = _varint(file)
    return (value >> 1) ^ -(value & 1)


def _varint(file: ByteFile) -> int:
    value = 0
    for shift in range(0, _MAX_BITS, 7):
        byte = file.read(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004
            return value
    raise ValueError("a number of more than 64 bits")
