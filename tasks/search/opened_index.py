"""An index that is open: its fragments are mapped into memory, and it knows which of their rows are searched."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

from reelabel.cores import usable_cores
from reelabel.errors import FrameFileError
from tasks.search.codes import dequantize, score_rows
from tasks.search.frames import FoundFrames, best_frames

if TYPE_CHECKING:
    from types import TracebackType

    import numpy.typing as npt

    from tasks.search.fragment import Rows
    from tasks.search.index_store import IndexStore

# A search compares this many vectors, or all of them if there are fewer: its time does not depend on how many there
# are, and what is found among fewer is exact but for the rounding of codes.
ROWS_COMPARED = 100_000
_BLOCK_ROWS = 16_384
# Of the frames that are near by their first bytes, this many are compared by all, for each that is wanted.
_CANDIDATES, _MORE_CANDIDATES = 2, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A fragment, and which of its files are searched.

    Attributes:
        rows: Its rows.
        files: Number of each of its files in the selection; -1 if it is not searched. Shape (files,), int64.
        searched: Which rows are searched; None for all. Shape (N,), bool.
        counts: How many of them each list has; shape (lists,), int64.
    """

    rows: Rows
    files: npt.NDArray[np.int64]
    searched: npt.NDArray[np.bool_] | None
    counts: npt.NDArray[np.int64]

    def rows_of(self, lists: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the searched rows of some ascending lists."""
        rows = self.rows.rows_of(lists)
        return rows if self.searched is None else rows[self.searched[rows]]

    def score(self, rows: npt.NDArray[np.int64], query: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the cosines of some ascending rows by their first bytes."""
        return score_rows(self.rows.codes, self.rows.scales, rows, query)

    def refine(self, rows: npt.NDArray[np.int64], query: npt.NDArray[np.float32]) -> FoundFrames:
        """Return some rows with their cosines by all bytes."""
        of = self.rows
        scores = np.vecdot(dequantize(of.codes[rows], of.fine[rows], of.scales[rows]), query)
        return FoundFrames(scores=scores, files=self.files[of.files[rows]], pts_ms=of.pts_ms[rows])


class OpenedIndex:
    """Finds frames among the files of a selection that the index covers; a context manager. Thread-safe.

    Attributes:
        covered: Which files of the selection it covers; shape (F,), bool.
        rows: Vectors that are searched.
        faults: Why the index, or parts of it, are not used; sentences.
    """

    def __init__(self, store: IndexStore, keys: pl.Series) -> None:
        """Open the newest index of a space; one that is missing covers nothing.

        Args:
            store: The index.
            keys: The embedding files of the selection; distinct.
        """
        self.covered = np.zeros(len(keys), np.bool_)
        self._parts: list[_Part] = []
        self._centroids = np.zeros((1, store.space.dimensions), np.float32)
        self._counts = np.zeros(1, np.int64)
        self._pool = ThreadPoolExecutor(usable_cores())
        generation, self.faults = store.read_newest()
        if generation is None:
            self.rows = 0
            return
        numbers = pl.DataFrame({"key": keys, "number": np.arange(len(keys))})
        try:
            self._centroids = store.read_lists(generation)
        except FrameFileError as error:
            self.faults.append(f"The search index is not used: {error.message}")
            generation = generation.model_copy(update={"fragments": ()})
        for info in generation.fragments:
            try:
                found = pl.DataFrame({"key": list(store.read_keys(info))}).join(
                    numbers, on="key", how="left", maintain_order="left"
                )
                files = found["number"].fill_null(-1).to_numpy()
                if (files >= 0).any():
                    self._add(store.open_fragment(info, generation), files)
            except FrameFileError as error:
                self.faults.append(f"A fragment of the search index is not used: {error.message}")
        self._counts = sum((part.counts for part in self._parts), self._counts)
        self.rows = int(self._counts.sum())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def _add(self, rows: Rows, files: npt.NDArray[np.int64]) -> None:
        self.covered[files[files >= 0]] = True
        searched = None if (files >= 0).all() else (files >= 0)[rows.files]
        counts = np.bincount(rows.lists if searched is None else rows.lists[searched], minlength=len(self._centroids))
        self._parts.append(_Part(rows=rows, files=files, searched=searched, counts=counts))

    def search(self, query: npt.NDArray[np.float32], *, limit: int, rows_compared: int = ROWS_COMPARED) -> FoundFrames:
        """Find the frames that fit best among those of the nearest lists.

        Args:
            query: A vector of length 1; shape (D,), float32.
            limit: Maximum frames to return.
            rows_compared: Lists are looked at until they hold this many vectors.

        Returns:
            Frames, best first.
        """
        lists = self._nearest_lists(query, rows_compared)
        work = [
            (part, block)
            for part in self._parts
            for rows in [part.rows_of(lists)]
            for block in np.array_split(rows, -(-len(rows) // _BLOCK_ROWS) or 1)
            if len(block)
        ]
        scores = list(self._pool.map(lambda item: item[0].score(item[1], query), work))
        least = _score_of_rank(scores, _CANDIDATES * limit + _MORE_CANDIDATES)
        near = [(part, rows[of >= least]) for (part, rows), of in zip(work, scores, strict=True)]
        return best_frames(self._pool.map(lambda item: item[0].refine(item[1], query), near), limit)

    def _nearest_lists(self, query: npt.NDArray[np.float32], rows_compared: int) -> npt.NDArray[np.int64]:
        """Return the nearest lists that together have enough searched rows; ascending."""
        if self.rows <= rows_compared:
            return np.flatnonzero(self._counts)
        order = np.argsort(-np.vecdot(self._centroids, query), kind="stable")
        enough = int(np.searchsorted(np.cumsum(self._counts[order]), rows_compared)) + 1
        return np.sort(order[:enough])


def _score_of_rank(scores: list[npt.NDArray[np.float32]], rank: int) -> float:
    """Return the score that `rank` of all have at least; -inf if there are not so many."""
    if sum(map(len, scores)) <= rank:
        return -np.inf
    return float(-np.partition(-np.concatenate(scores), rank - 1)[rank - 1])
