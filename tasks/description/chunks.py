"""Cuts a video into chunks of equal length, and assigns frames to them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.description.embeddings import Embeddings

_MS = 1000
_TOLERANCE_S = 1e-3  # a last chunk shorter than this is a rounding error of the duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a video, [start_s, start_s + duration_s), on the clock of the frames' times."""

    index: int  # from 0
    start_s: float
    duration_s: float  # that of the last chunk may be shorter

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s

    def times_s(self, frames: int) -> npt.NDArray[np.float64]:
        """Return the target times of the frames: the middles of equal parts; shape (frames,), float64."""
        middles = np.arange(frames, dtype=np.float64) + 0.5
        return np.asarray(self.start_s + middles * (self.duration_s / frames), np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbeddedChunk:
    chunk: Chunk
    vectors: npt.NDArray[np.float32] = field(repr=False)  # L2-normalised; shape (T, D), float32; T may be 0
    pts_ms: npt.NDArray[np.int64] = field(repr=False)  # true times, ascending; shape (T,), int64

    @property
    def start_ms(self) -> int:
        return round(self.chunk.start_s * _MS)

    @property
    def duration_ms(self) -> int:
        return round(self.chunk.duration_s * _MS)


def cut_chunks(duration_s: float, *, chunk_s: float, start_s: float = 0.0) -> tuple[Chunk, ...]:
    """Cut a video, or a segment of one, into chunks; the last one is the remainder.

    A single frame may have no length, and is then one chunk of length 0.

    Raises:
        ValueError: A length is negative or not finite, or `chunk_s` is zero.
    """
    if not (math.isfinite(duration_s) and duration_s >= 0 and math.isfinite(chunk_s) and chunk_s > 0):
        raise ValueError(f"cannot cut {duration_s:g} s into chunks of {chunk_s:g} s")
    count = max(1, math.ceil((duration_s - _TOLERANCE_S) / chunk_s))
    return tuple(
        Chunk(index=index, start_s=start_s + index * chunk_s, duration_s=min(chunk_s, duration_s - index * chunk_s))
        for index in range(count)
    )


def assign_frames(chunks: tuple[Chunk, ...], pts_ms: npt.NDArray[np.int64]) -> list[slice]:
    """Return the frames of each of some adjacent chunks, given the frames' times, increasing; shape (N,).

    Those before the first chunk or after the last one belong to it.
    """
    inner = [round(chunk.start_s * _MS) for chunk in chunks[1:]]
    borders = [0, *np.searchsorted(pts_ms, inner).tolist(), len(pts_ms)]
    return [slice(first, last) for first, last in itertools.pairwise(borders)]


def embed_chunks(chunks: tuple[Chunk, ...], embeddings: Embeddings) -> tuple[EmbeddedChunk, ...]:
    return tuple(
        EmbeddedChunk(chunk=chunk, vectors=embeddings.vectors[rows], pts_ms=embeddings.pts_ms[rows])
        for chunk, rows in zip(chunks, assign_frames(chunks, embeddings.pts_ms), strict=True)
    )
