"""Chunk parsing for AVI files (Microsoft RIFF, with the OpenDML extensions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reelabel.containers.mp4_boxes import read_up_to
from reelabel.fast_path import FastPathUnavailableError
from reelabel.sources.sparse_file import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

    from reelabel.sources.sparse_file import SparseFile

HEADER_BYTES = 8
_LIST_HEAD_BYTES = 12
_LISTS = frozenset({b"RIFF", b"LIST"})
_DESCENDED = frozenset({b"AVI ", b"AVIX", b"movi", b"rec "})
_NON_MEDIA = frozenset({b"JUNK", b"idx1"})
_MAX_CHUNKS_BEFORE_MOVI = 100


class Chunk(NamedTuple):
    """A chunk header.

    Attributes:
        kind: FourCC of the chunk; a stream's chunks begin with the two digits of its number.
        size_bytes: Length of the payload.
        form: Type of a list; empty for other chunks.
    """

    kind: bytes
    size_bytes: int
    form: bytes = b""

    @property
    def stream(self) -> bytes:
        """The two digits of the stream's number."""
        return self.kind[:2]

    @property
    def total_bytes(self) -> int:
        """Total length: header, payload and padding."""
        return HEADER_BYTES + self.size_bytes + self.size_bytes % 2

    @property
    def is_non_media(self) -> bool:
        """Whether the chunk contains no media data of its own."""
        return not self.size_bytes or self.form in _DESCENDED or self.kind in _NON_MEDIA or self.stream == b"ix"


def is_avi(file: BinaryIO | SparseFile) -> bool:
    """Return whether a file begins with an AVI header."""
    return read_chunk_header(file, 0)[::2] == (b"RIFF", b"AVI ")


def prefetch_index(file: SparseFile) -> None:
    """Fetch the index after the movi list in one request.

    Raises:
        MisledError: There is no movi list.
    """
    position = _first_chunk(file) - _LIST_HEAD_BYTES
    position += read_chunk_header(file, position).total_bytes
    file.prefetch([ByteRange(position, read_chunk_header(file, position).total_bytes)])


def walk_chunks(
    file: BinaryIO | SparseFile,
    size_bytes: int,
    *,
    known: Mapping[int, Chunk],
) -> Iterator[tuple[int, Chunk]]:
    """Walk the chunks from the first one in the movi list to the end of the file, descending into lists.

    Args:
        file: The AVI.
        size_bytes: Length of the file.
        known: Chunks by offset, whose headers need not be read.

    Yields:
        Offset and chunk.

    Raises:
        MisledError: There is no movi list.
    """
    position = _first_chunk(file)
    while position + HEADER_BYTES <= size_bytes:
        chunk = known.get(position) or read_chunk_header(file, position)
        yield position, chunk
        position += _LIST_HEAD_BYTES if chunk.form in _DESCENDED else chunk.total_bytes


def read_chunk_header(file: BinaryIO | SparseFile, position: int) -> Chunk:
    """Read a chunk header; past the end of the file, it is empty."""
    file.seek(position)
    head = read_up_to(file, _LIST_HEAD_BYTES)
    kind, size_bytes = head[:4], int.from_bytes(head[4:8], "little")
    return Chunk(kind, size_bytes, head[8:] if kind in _LISTS else b"")


def _first_chunk(file: BinaryIO | SparseFile) -> int:
    position = _LIST_HEAD_BYTES
    for _ in range(_MAX_CHUNKS_BEFORE_MOVI):
        chunk = read_chunk_header(file, position)
        if chunk.form == b"movi":
            return position + _LIST_HEAD_BYTES
        position += chunk.total_bytes
    raise FastPathUnavailableError("the AVI has no movi list")
