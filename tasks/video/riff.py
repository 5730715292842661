"""The chunks of an AVI file (Microsoft's RIFF, with the OpenDML extensions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tasks.video.boxes import read_up_to
from tasks.video.misled import MisledError
from tasks.video.ranges import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

    from tasks.video.ranges import SparseFile

HEAD_BYTES = 8
_LIST_HEAD_BYTES = 12
_LISTS = frozenset({b"RIFF", b"LIST"})
_ENTERED = frozenset({b"AVI ", b"AVIX", b"movi", b"rec "})
_FILLINGS = frozenset({b"JUNK", b"idx1"})
_MOST_CHUNKS_BEFORE = 100


class Chunk(NamedTuple):
    """A chunk's head.

    Attributes:
        kind: Its four letters; those of a stream's chunk begin with the stream's number.
        size_bytes: Length of what follows the head.
        form: What a list holds; empty for other chunks.
    """

    kind: bytes
    size_bytes: int
    form: bytes = b""

    @property
    def stream(self) -> bytes:
        """The two digits of a stream's number."""
        return self.kind[:2]

    @property
    def whole_bytes(self) -> int:
        """Length from its head to the next chunk's."""
        return HEAD_BYTES + self.size_bytes + self.size_bytes % 2

    @property
    def is_filling(self) -> bool:
        """Whether it holds no picture and no sound of its own."""
        return not self.size_bytes or self.form in _ENTERED or self.kind in _FILLINGS or self.stream == b"ix"


def is_avi(file: BinaryIO | SparseFile) -> bool:
    """Tell whether a file begins as AVI files do."""
    return read_head(file, 0)[::2] == (b"RIFF", b"AVI ")


def prefetch_index(file: SparseFile) -> None:
    """Fetch the index behind the streams at once.

    Raises:
        MisledError: There are no streams.
    """
    position = _first_chunk(file) - _LIST_HEAD_BYTES
    position += read_head(file, position).whole_bytes
    file.prefetch([Span(position, read_head(file, position).whole_bytes)])


def walk_chunks(
    file: BinaryIO | SparseFile,
    size_bytes: int,
    *,
    known: Mapping[int, Chunk],
) -> Iterator[tuple[int, Chunk]]:
    """Go from the streams' first chunk to the file's end, and into lists.

    Args:
        file: The AVI.
        size_bytes: Its length.
        known: Chunks by their positions, whose heads need not be read.

    Yields:
        Position and chunk.

    Raises:
        MisledError: There is no chunk of a stream.
    """
    position = _first_chunk(file)
    while position + HEAD_BYTES <= size_bytes:
        chunk = known.get(position) or read_head(file, position)
        yield position, chunk
        position += _LIST_HEAD_BYTES if chunk.form in _ENTERED else chunk.whole_bytes


def read_head(file: BinaryIO | SparseFile, position: int) -> Chunk:
    """Read a chunk's head; behind the file's end it is empty."""
    file.seek(position)
    head = read_up_to(file, _LIST_HEAD_BYTES)
    kind, size_bytes = head[:4], int.from_bytes(head[4:8], "little")
    return Chunk(kind, size_bytes, head[8:] if kind in _LISTS else b"")


def _first_chunk(file: BinaryIO | SparseFile) -> int:
    position = _LIST_HEAD_BYTES
    for _ in range(_MOST_CHUNKS_BEFORE):
        chunk = read_head(file, position)
        if chunk.form == b"movi":
            return position + _LIST_HEAD_BYTES
        position += chunk.whole_bytes
    raise MisledError("its pictures are not where an AVI has them")
