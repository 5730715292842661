"""The exact search: every vector of some embedding files, as they are stored. The reference, and what always works."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import FrameFileError, ObjectMissingError
from tasks.search.frames import FoundFrames, best_frames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tasks.embedding.embedding_file import EmbeddingCache
    from tasks.search.catalogue import VectorSpace

_READERS = 8
_FILES_AHEAD = 64


@dataclass(kw_only=True)
class ExactSearch:
    """Searches embedding files one by one.

    Attributes:
        cache: Reads them.
        space: Whose vectors are compared.
        rows: Vectors compared so far.
        refused: Why files were not searched, by key.
    """

    cache: EmbeddingCache
    space: VectorSpace
    rows: int = 0
    refused: dict[str, str] = field(default_factory=dict)

    def search(
        self, keys: Sequence[str], numbers: Sequence[int], query: npt.NDArray[np.float32], *, limit: int
    ) -> FoundFrames:
        """Find the frames that fit best.

        Args:
            keys: Embedding files.
            numbers: Their numbers in the selection.
            query: A vector of length 1; shape (D,), float32.
            limit: Maximum frames to return.

        Returns:
            Frames, best first.
        """
        return best_frames(self._score_files(keys, numbers, query), limit)

    def _score_files(
        self, keys: Sequence[str], numbers: Sequence[int], query: npt.NDArray[np.float32]
    ) -> Iterator[FoundFrames]:
        with ThreadPoolExecutor(_READERS) as readers:
            for start in range(0, len(keys), _FILES_AHEAD):
                part = slice(start, start + _FILES_AHEAD)
                scored = readers.map(
                    lambda key, number: self._score_file(key, number, query), keys[part], numbers[part]
                )
                for key, found in zip(keys[part], scored, strict=True):
                    if isinstance(found, str):
                        self.refused[key] = found
                    else:
                        self.rows += len(found)
                        yield found

    def _score_file(self, key: str, number: int, query: npt.NDArray[np.float32]) -> FoundFrames | str:
        """Score the frames of a file; return why it must not be used, if it must not."""
        try:
            stored = self.cache.read_stored(key)
        except (FrameFileError, ObjectMissingError) as error:
            return error.message
        vectors = stored.embeddings.vectors
        if fault := self.space.refuse(stored.model, vectors.shape[1]):
            return fault
        return FoundFrames(scores=vectors @ query, files=np.full(len(vectors), number), pts_ms=stored.embeddings.pts_ms)
