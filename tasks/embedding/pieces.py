"""Splits a video into pieces for decoding, so that memory does not grow with its length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.segment import Segment
from tasks.description.chunks import cut_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.domain import EmbeddingSpec


# A part of a video, and its number of chunks.
Piece = tuple[Segment, int]
# Bounds of what is decoded at a time.
PIECE_BYTES = 128 * 1024**2
_MAX_FRAMES = 512  # limit of one sampling
_CHANNELS = 3
# A piece ends before the next one begins, because ends of segments are inclusive.
_BEFORE_S = 1e-3


def first_chunk(segment: Segment, spec: EmbeddingSpec) -> Piece:
    """Return the first chunk of a video of unknown length as a piece."""
    end_s = (segment.start_s or 0.0) + spec.seconds_per_chunk - _BEFORE_S
    return Segment.of(segment.start_s, end_s if segment.end_s is None else min(segment.end_s, end_s)), 1


def cut_pieces(
    segment: Segment, length_s: float, spec: EmbeddingSpec, *, frame_pixels: int, first: int = 0
) -> Iterator[Piece]:
    """Yield the pieces of a video, or of a segment of it, with their number of chunks.

    Pieces consist of whole chunks; a shorter last chunk is a separate piece, so that it gets as many frames. `first` is
    the number of the first requested chunk.
    """
    most = most_chunks(spec, frame_pixels=frame_pixels)
    start_s, chunk_s = segment.start_s or 0.0, spec.seconds_per_chunk
    chunks = cut_chunks(length_s, chunk_s=chunk_s, start_s=start_s)
    whole = len(chunks) if chunks[-1].duration_s >= chunk_s - _BEFORE_S else len(chunks) - 1
    counts = [min(most, whole - at) for at in range(first, whole, most)]
    counts += [1] if max(first, whole) < len(chunks) else []
    for count in counts:
        is_last = first + count == len(chunks)
        end_s = segment.end_s if is_last else chunks[first + count - 1].end_s - _BEFORE_S
        begins_s = segment.start_s if first == 0 else chunks[first].start_s
        yield Segment.of(begins_s, end_s), count
        first += count


def most_chunks(spec: EmbeddingSpec, *, frame_pixels: int) -> int:
    return max(1, min(_MAX_FRAMES, PIECE_BYTES // (_CHANNELS * frame_pixels)) // spec.frames_per_chunk)
