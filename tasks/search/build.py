"""Building the index and keeping it up: new files are added, and what is no longer in use is left out.

Fragments are never changed. An update reads the embedding files that the index lacks, packs their vectors into new
fragments, together with those of fragments that are less than half in use, and publishes the next generation. Centroids
are found anew whenever more lists suit the vectors, which is when there are four times as many. As long as a search
compares all vectors anyway, there is one list.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import FrameFileError, ObjectMissingError
from tasks.search.codes import dequantize, quantize
from tasks.search.fragment import Rows, rows_per_fragment
from tasks.search.index_store import Generation
from tasks.search.lists import SAMPLES_PER_LIST, Lists, count_lists, train_lists
from tasks.search.opened_index import ROWS_COMPARED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from tasks.embedding.embedding_file import EmbeddingCache, StoredEmbeddings
    from tasks.search.index_store import FragmentInfo, IndexStore

_LEAST_SHARE = 0.5
_READERS = 8
_FILES_AHEAD = 64
_FILES_LOOKED_AT = 16
_SAMPLES_PER_FILE = 16
_MAX_FAULTS = 5


@dataclass(kw_only=True)
class BuildReport:
    """What an update did.

    Attributes:
        added: Embedding files that were added.
        refused: Those that are missing, or must not be used.
        rows: Vectors of the index now.
        fragments: Its fragments.
        lists: Its lists.
        faults: Sentences on what was refused, at most five, and on what had to be made again.
        was_overtaken: Whether another builder was faster, so that nothing was changed.
    """

    added: int = 0
    refused: int = 0
    rows: int = 0
    fragments: int = 0
    lists: int = 1
    faults: list[str] = field(default_factory=list)
    was_overtaken: bool = False


def update_index(store: IndexStore, cache: EmbeddingCache, keys: Iterable[str]) -> BuildReport:
    """Bring the index of a space up to date.

    Safe to run in several places at once, and to kill: the index is the old one until the new one is whole. Embedding
    files that cannot be used are left out, and told.

    Args:
        store: The index.
        cache: Reads embedding files.
        keys: The embedding files that are in use.
    """
    number = store.newest_number()
    found, faults = store.read_newest()
    old = found or Generation(model=store.space.model, dimensions=store.space.dimensions)
    builder = _Builder(store, cache, old, BuildReport(faults=list(faults)))
    new = builder.update(dict.fromkeys(keys))
    report = builder.report
    is_published = (new == old and not faults) or store.publish(new, after=number)
    for info in builder.written:
        if not is_published or info not in new.fragments:
            store.discard(info)
    if not is_published:
        report.was_overtaken = True
        return report
    report.rows, report.fragments, report.lists = new.rows, len(new.fragments), new.list_count
    store.forget_copies(new)
    store.sweep()
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Rows of some files."""

    keys: tuple[str, ...]
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fragment:
    """A fragment of the old generation, and how many of its rows are in use."""

    info: FragmentInfo
    in_use: int


class _Builder:
    """Makes the next generation of an index, without publishing it."""

    def __init__(self, store: IndexStore, cache: EmbeddingCache, old: Generation, report: BuildReport) -> None:
        self.report = report
        self.written: list[FragmentInfo] = []
        self._store = store
        self._cache = cache
        self._old = old
        self._full = rows_per_fragment(old.dimensions)
        try:
            self._lists = Lists(store.read_lists(old))
        except FrameFileError as error:
            report.faults.append(f"The search index is rebuilt: {error.message}")
            self._old = Generation(model=old.model, dimensions=old.dimensions)
            self._lists = Lists(store.read_lists(self._old))

    def update(self, wanted: dict[str, None]) -> Generation:
        """Return a generation of the files that are wanted."""
        kept, sparse, covered = self._look_at_fragments(wanted)
        missing = [key for key in wanted if key not in covered]
        if not missing and len(sparse) == 1 and sparse[0].in_use == sparse[0].info.rows:
            return self._old  # one fragment is still being filled, and nothing is to be added
        base = self._old
        rows = sum(each.in_use for each in (*kept, *sparse)) + round(len(missing) * self._rows_per_file(missing))
        is_regrouped = rows > ROWS_COMPARED and count_lists(rows) > base.list_count
        if is_regrouped:
            kept, sparse = [], [*kept, *sparse]
            base = self._train(sparse, missing, rows)
        packed = (self._rows_in_use(each.info, wanted) for each in sparse)
        made = [self._write(part) for part in _pack(itertools.chain(packed, self._read_files(missing)), self._full)]
        return base.model_copy(update={"fragments": (*(each.info for each in kept), *made)})

    def _look_at_fragments(self, wanted: dict[str, None]) -> tuple[list[_Fragment], list[_Fragment], set[str]]:
        """Return the fragments that stay, those that are to be packed anew, and the keys of both.

        Fragments that are damaged are in none of them, so that their files are read again.
        """
        kept: list[_Fragment] = []
        sparse: list[_Fragment] = []
        covered = set[str]()
        for info in self._old.fragments:
            try:
                files = self._store.read_keys(info)
                self._store.open_fragment(info, self._old)
            except FrameFileError as error:
                self.report.faults.append(f"A fragment of the search index is made again: {error.message}")
                continue
            covered.update(files)
            in_use = sum(rows for key, rows in files.items() if key in wanted)
            (kept if in_use >= _LEAST_SHARE * self._full else sparse).append(_Fragment(info=info, in_use=in_use))
        return kept, sparse, covered

    def _rows_per_file(self, missing: Sequence[str]) -> float:
        """Estimate how many vectors a file has, by the files of the index, or by some of the missing ones."""
        if self._old.fragments:
            return self._old.rows / sum(info.files for info in self._old.fragments)
        some = missing[:: -(-len(missing) // _FILES_LOOKED_AT) or 1]
        return sum(map(len, self._sample_files(some, 1))) / max(1, len(some))

    def _train(self, fragments: Sequence[_Fragment], missing: Sequence[str], rows: int) -> Generation:
        """Find centroids for a number of vectors, those of fragments and of missing files; write them."""
        wanted = SAMPLES_PER_LIST * count_lists(rows)
        step = max(1, rows // wanted)
        # Few vectors of many files, as those of one are alike.
        file_step = max(1, len(missing) * _SAMPLES_PER_FILE // wanted)
        opened = (self._store.open_fragment(each.info, self._old) for each in fragments)
        sample = [dequantize(part.codes[::step], part.fine[::step], part.scales[::step]) for part in opened]
        found = np.concatenate([*sample, *self._sample_files(missing[::file_step], max(1, step // file_step))])
        count = min(count_lists(rows), max(1, len(found)))  # files may have less than was expected
        centroids = train_lists(found, count) if len(found) else np.zeros((1, found.shape[1]), np.float32)
        self._lists = Lists(centroids)
        return self._old.model_copy(update={"lists": self._store.write_lists(centroids), "list_count": count})

    def _sample_files(self, keys: Sequence[str], step: int) -> list[npt.NDArray[np.float32]]:
        """Return every `step`-th vector of some files, without those that must not be used."""
        with ThreadPoolExecutor(_READERS) as readers:
            return list(readers.map(lambda key: self._sample_file(key, step), keys))

    def _sample_file(self, key: str, step: int) -> npt.NDArray[np.float32]:
        stored = self._read_sound(key)
        if isinstance(stored, str):
            return np.empty((0, self._store.space.dimensions), np.float32)
        return stored.embeddings.vectors[::step].copy()  # of a file that is not kept

    def _rows_in_use(self, info: FragmentInfo, wanted: dict[str, None]) -> _Batch:
        keys = tuple(self._store.read_keys(info))
        rows = self._store.open_fragment(info, self._old)
        rows = rows.take(np.flatnonzero(np.array([key in wanted for key in keys])[rows.files]))
        return _Batch(keys=keys, rows=rows)

    def _read_files(self, keys: Sequence[str]) -> Iterator[_Batch]:
        """Read embedding files, a few ahead; those that must not be used are counted, and the first ones told."""
        with ThreadPoolExecutor(_READERS) as readers:
            for start in range(0, len(keys), _FILES_AHEAD):
                part = keys[start : start + _FILES_AHEAD]
                for key, batch in zip(part, readers.map(self._read_file, part), strict=True):
                    if isinstance(batch, str):
                        self._refuse(key, batch)
                    else:
                        self.report.added += 1
                        yield batch

    def _read_file(self, key: str) -> _Batch | str:
        """Read an embedding file; return why it must not be used, if it must not."""
        stored = self._read_sound(key)
        if isinstance(stored, str):
            return stored
        vectors = stored.embeddings.vectors
        codes, fine, scales = quantize(vectors)
        rows = Rows(
            lists=np.zeros(len(vectors), np.int32),
            files=np.zeros(len(vectors), np.uint32),
            pts_ms=stored.embeddings.pts_ms,
            scales=scales,
            codes=codes,
            fine=fine,
        )
        return _Batch(keys=(key,), rows=rows)

    def _read_sound(self, key: str) -> StoredEmbeddings | str:
        try:
            stored = self._cache.read_stored(key)
        except (FrameFileError, ObjectMissingError) as error:
            return error.message
        return self._store.space.refuse(stored.model, stored.embeddings.vectors.shape[1]) or stored

    def _refuse(self, key: str, why: str) -> None:
        self.report.refused += 1
        if self.report.refused <= _MAX_FAULTS:
            self.report.faults.append(f"The embedding file {key} is left out of the search: {why}")

    def _write(self, batch: _Batch) -> FragmentInfo:
        # Of all its rows at once, as few rows are slow to compare with many centroids.
        rows = replace(batch.rows, lists=self._lists.assign(batch.rows.codes))
        info = self._store.write_fragment(rows, batch.keys)
        self.written.append(info)
        return info


def _pack(batches: Iterable[_Batch], full: int) -> Iterator[_Batch]:
    """Join batches to parts of at most `full` rows; a larger batch is a part by itself."""
    waiting: list[_Batch] = []
    count = 0
    for batch in batches:
        if not len(batch.rows):
            continue
        if waiting and count + len(batch.rows) > full:
            yield _join(waiting)
            waiting, count = [], 0
        waiting.append(batch)
        count += len(batch.rows)
    if waiting:
        yield _join(waiting)


def _join(batches: Sequence[_Batch]) -> _Batch:
    """Join batches, without the files that have no rows."""
    keys: list[str] = []
    files = []
    for batch in batches:
        used, renumbered = np.unique(batch.rows.files, return_inverse=True)
        files.append((renumbered + len(keys)).astype(np.uint32))
        keys += [batch.keys[number] for number in used.tolist()]
    rows = Rows(
        lists=np.concatenate([batch.rows.lists for batch in batches]),
        files=np.concatenate(files),
        pts_ms=np.concatenate([batch.rows.pts_ms for batch in batches]),
        scales=np.concatenate([batch.rows.scales for batch in batches]),
        codes=np.concatenate([batch.rows.codes for batch in batches]),
        fine=np.concatenate([batch.rows.fine for batch in batches]),
    )
    return _Batch(keys=tuple(keys), rows=rows)
