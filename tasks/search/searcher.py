"""One search over a selection of videos: by the index where it reaches, by the embedding files where it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

from reelabel.text import pluralize
from tasks.search.exact import ExactSearch
from tasks.search.frames import best_frames
from tasks.search.moments import MOMENT_MS, merge_moments
from tasks.search.opened_index import OpenedIndex

if TYPE_CHECKING:
    from types import TracebackType

    import numpy.typing as npt

    from tasks.embedding.embedding_file import EmbeddingCache
    from tasks.search.frames import FoundFrames
    from tasks.search.index_store import IndexStore
    from tasks.search.moments import Moment

# Frames for each moment that is asked for, at first: neighbours of a good frame are good, too.
_FRAMES_PER_MOMENT = 30
_GROWTH = 10
_MOST_FRAMES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What was found.

    Attributes:
        moments: The best moments, best first.
        rows: Vectors that were searched, by the index or exactly.
        notes: Sentences on what was not searched, or not as usual.
    """

    moments: tuple[Moment, ...]
    rows: int
    notes: tuple[str, ...]


class Searcher:
    """Searches the videos of a selection; a context manager.

    Attributes:
        files: The embedding files of the selection, by number, with the columns of `FILES`.
    """

    def __init__(self, files: pl.DataFrame, cache: EmbeddingCache, store: IndexStore, *, exact: bool = False) -> None:
        """Open the index.

        Args:
            files: The selection, as `Catalogue.files` returns it.
            cache: Reads embedding files.
            store: The index of their space.
            exact: Do without the index.
        """
        self.files = files
        self._videos = files["video"].to_numpy()
        self._cache = cache
        self._space = store.space
        self._index = OpenedIndex(store, self.files["key"] if not exact else pl.Series([], dtype=pl.String))
        uncovered = np.arange(len(self.files)) if exact else np.flatnonzero(~self._index.covered)
        self._uncovered = uncovered.tolist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._index.__exit__(kind, error, traceback)

    def search(
        self,
        query: npt.NDArray[np.float32],
        *,
        top: int,
        min_score: float | None = None,
        without: tuple[str, int] | None = None,
    ) -> SearchResult:
        """Find the moments that fit best.

        Args:
            query: A vector of length 1; shape (D,), float32.
            top: Maximum moments to return.
            min_score: Least cosine.
            without: Key of an embedding file, and a time in milliseconds; that moment of its video is not returned.
        """
        exact = ExactSearch(cache=self._cache, space=self._space)
        keys = self.files["key"].gather(self._uncovered).to_list()
        outside = exact.search(keys, self._uncovered, query, limit=_MOST_FRAMES)
        limit = _FRAMES_PER_MOMENT * (top + 1)
        while True:
            inside = self._index.search(query, limit=limit)
            best = self._select(best_frames([inside, outside], _MOST_FRAMES), min_score, without)
            moments = merge_moments(best, self._videos, top=top)
            is_whole = len(inside) < limit or (min_score is not None and inside.scores[-1] < min_score)
            if len(moments) == top or is_whole or limit >= _MOST_FRAMES:
                break
            limit *= _GROWTH  # one long scene has more good frames than that
        rows, notes = self._index.rows + exact.rows, (*self._index.faults, *self._notes(exact))
        return SearchResult(moments=tuple(moments), rows=rows, notes=notes)

    def _select(self, frames: FoundFrames, min_score: float | None, without: tuple[str, int] | None) -> FoundFrames:
        if min_score is not None:
            frames = frames.take(np.flatnonzero(frames.scores >= min_score))
        if without is not None:
            key, time_ms = without
            is_near = np.abs(frames.pts_ms - time_ms) < MOMENT_MS
            videos = self._videos[(self.files["key"] == key).to_numpy()]
            is_same = np.isin(self._videos[frames.files], videos)
            frames = frames.take(np.flatnonzero(~(is_near & is_same)))
        return frames

    def _notes(self, exact: ExactSearch) -> list[str]:
        """Say what is not searched, or only by reading it."""
        notes = []
        if exact.refused:
            key, why = next(iter(exact.refused.items()))
            notes.append(
                f"{pluralize(len(exact.refused), 'embedding file')} cannot be searched, such as {key}: {why} "
                "Describe these videos again."
            )
        if self._uncovered and self._index.rows:
            notes.append(f"{pluralize(len(self._uncovered), 'video')} not yet in the search index: read one by one.")
        return notes
