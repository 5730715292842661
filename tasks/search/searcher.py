"""Searches over a selection of videos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reelabel.text import pluralize
from tasks.search.hits import MOMENT_MS, merge_moments

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import polars as pl

    from tasks.embedding.vector_file import VectorCache
    from tasks.search.hits import Hits, Moment
    from tasks.search.local_index import LocalIndex

# Frames per requested moment, at first: neighbours of a good frame are good, too.
_FRAMES_PER_MOMENT = 30
_GROWTH = 10
_MOST_FRAMES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best moments, best first."""

    moments: tuple[Moment, ...]
    rows: int  # number of vectors compared
    notes: tuple[str, ...]  # sentences about videos that could not be searched


class Searcher:
    """Searches the videos of a selection.

    Attributes:
        files: The embedding files of the selection, by number, with the columns of `FILES`.
        refused: Reasons why embedding files are not searched, by key.
    """

    def __init__(self, files: pl.DataFrame, cache: VectorCache, index: LocalIndex, *, is_whole: bool) -> None:
        """Add missing embedding files to the local index of their model.

        `files` is the selection, as `DatabaseCatalogue.files` returns it; if it is whole, the index may remove
        everything else.

        Raises:
            StoreUnavailableError: The store is unavailable.
            DiskFullError: The index does not fit on the disk.
        """
        self.files = files
        if is_whole:
            index.forget_all_but(files["key"])
        self.refused: Mapping[str, str] = index.add(index.missing(files["key"]), cache)
        self._index = index.search(files["key"])
        self._videos = files["video"].to_numpy()

    @property
    def rows(self) -> int:
        """Number of vectors compared."""
        return len(self._index)

    def find(self, query: npt.NDArray[np.float32], *, limit: int) -> Hits:
        """Find the frames that fit best, like `IndexSearch.find`."""
        return self._index.find(query, limit=limit)

    def search(
        self,
        query: npt.NDArray[np.float32],
        *,
        top: int,
        min_score: float | None = None,
        exclude: tuple[str, int] | None = None,
    ) -> SearchResult:
        """Find the up to `top` moments that fit a vector of length 1 best, with a cosine of at least `min_score`.

        `exclude` is the key of an embedding file, and a time in milliseconds; that moment of its video is left out.
        """
        limit = _FRAMES_PER_MOMENT * (top + 1)
        while True:
            found = self.find(query, limit=limit)
            best = self._select(found, min_score, exclude)
            moments = merge_moments(best, self._videos, top=top)
            is_whole = len(found) < limit or (min_score is not None and found.scores[-1] < min_score)
            if len(moments) == top or is_whole or limit >= _MOST_FRAMES:
                break
            limit *= _GROWTH  # a long scene may have more good frames than that
        return SearchResult(moments=tuple(moments), rows=self.rows, notes=self._notes)

    def _select(self, frames: Hits, min_score: float | None, exclude: tuple[str, int] | None) -> Hits:
        if min_score is not None:
            frames = frames.select(np.flatnonzero(frames.scores >= min_score))
        if exclude is not None:
            key, time_ms = exclude
            is_near = np.abs(frames.pts_ms - time_ms) < MOMENT_MS
            videos = self._videos[(self.files["key"] == key).to_numpy()]
            is_same = np.isin(self._videos[frames.files], videos)
            frames = frames.select(np.flatnonzero(~(is_near & is_same)))
        return frames

    @property
    def _notes(self) -> tuple[str, ...]:
        if not self.refused:
            return ()
        key, why = next(iter(self.refused.items()))
        count = pluralize(len(self.refused), "embedding file")
        return (f"{count} cannot be searched, such as {key}: {why} Describe these videos again.",)
