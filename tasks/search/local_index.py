"""The local search index: quantised vectors of described videos; a search adds new ones, and compares all.

Files `<random>.arrow` in one folder per model, which only this user can read: columns `file` (uint32, the position in
the keys, which the schema's metadata holds as JSON), `pts_ms` (int64), `scale` (float32), and `code` and `fine`
(fixed-size lists of int8). They are written under a temporary name, renamed, and never changed. Two concurrent searches
may add the same videos; if a key is in two files, the first one is used.
"""

from __future__ import annotations

import itertools
import json
import mmap
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from reelabel import arrow as pa
from reelabel.cores import usable_cores
from reelabel.digest import json_digest
from reelabel.disk import disk_errors
from reelabel.errors import FrameFileError, ObjectMissingError
from tasks.search.catalogue import name_version
from tasks.search.codes import dequantize, quantize, score_rows
from tasks.search.hits import Hits, top_hits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tasks.domain import ModelIdentity
    from tasks.embedding.vector_file import VectorCache

_FILE_BYTES = 64 * 1024**2
_LEAST_SHARE = 0.5
_BLOCK_ROWS = 65_536
# Candidates by first bytes that are compared by both, per requested frame.
_CANDIDATES, _MORE_CANDIDATES = 2, 200
_READERS, _VIDEOS_AHEAD = 8, 64
_LEFT_AFTER_S = 86_400  # no search takes so long to write a file
_KEYS = b"keys"
_TYPES = {"file": np.uint32, "pts_ms": np.int64, "scale": np.float32}
_VALUES = ("pts_ms", "scales", "codes", "fine")  # columns of `Rows` but for the numbers of their keys


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Vectors of some videos, as codes."""

    keys: tuple[str, ...] = field(repr=False)  # of their embedding files
    files: npt.NDArray[np.uint32] = field(repr=False)  # position of each row's key, ascending; shape (N,)
    pts_ms: npt.NDArray[np.int64] = field(repr=False)  # shape (N,)
    scales: npt.NDArray[np.float32] = field(repr=False)  # of each row's codes; shape (N,)
    codes: npt.NDArray[np.int8] = field(repr=False)  # first bytes; shape (N, D)
    fine: npt.NDArray[np.int8] = field(repr=False)  # second bytes; shape (N, D)

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, is_wanted: npt.NDArray[np.bool_]) -> Rows:
        """Return the rows of some of its keys; shape (keys,)."""
        rows = is_wanted[self.files]
        return Rows(
            keys=tuple(itertools.compress(self.keys, is_wanted)),
            files=(np.cumsum(is_wanted) - 1)[self.files[rows]].astype(np.uint32),
            **{name: getattr(self, name)[rows] for name in _VALUES},
        )

    def encode(self) -> bytes:
        columns = {
            "file": pa.array(self.files),
            "pts_ms": pa.array(self.pts_ms),
            "scale": pa.array(self.scales),
            "code": _list_array(self.codes),
            "fine": _list_array(self.fine),
        }
        metadata = {_KEYS: json.dumps(self.keys).encode()}
        return pa.arrow_file(pa.table(columns).replace_schema_metadata(metadata))


def _list_array(rows: npt.NDArray[np.int8]) -> Any:  # noqa: ANN401 - pyarrow
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


def _to_matrix(lists: Any) -> npt.NDArray[np.int8]:  # noqa: ANN401 - pyarrow
    found: npt.NDArray[np.int8] = lists.flatten().to_numpy().reshape(-1, lists.type.list_size)
    return found


def open_rows(path: Path) -> Rows:
    """Map a file into memory; its pages are read when they are first used.

    Raises:
        FrameFileError: It is damaged.
        FileNotFoundError: It was removed.
    """
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        table = pa.ipc.open_file(pa.py_buffer(mapped)).read_all().combine_chunks()
        table.validate()
        files, pts_ms, scales = (
            table[name].chunk(0).to_numpy().astype(kind, copy=False) for name, kind in _TYPES.items()
        )
        codes, fine = (_to_matrix(table[name].chunk(0)) for name in ("code", "fine"))
        keys = tuple(json.loads(table.schema.metadata[_KEYS]))
        rows = Rows(keys=keys, files=files, pts_ms=pts_ms, scales=scales, codes=codes, fine=fine)
        is_whole = len(files) == len(codes) == len(fine) and files[-1] < len(rows.keys)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise FrameFileError(f"{path} is damaged ({type(error).__name__}).") from None
    if not is_whole:
        raise FrameFileError(f"{path} contradicts itself.")
    _read_pages_alone(mapped, fine)
    return rows


def _read_pages_alone(mapped: mmap.mmap, column: npt.NDArray[np.int8]) -> None:
    """Disable read-ahead for a column.

    Second bytes are read only for a few scattered rows. With read-ahead of up to megabytes per row, they would displace
    the first bytes from memory.
    """
    start = column.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    start += -start % mmap.PAGESIZE
    if start < len(mapped):
        mapped.madvise(mmap.MADV_RANDOM, start, min(column.nbytes, len(mapped) - start))


def _join(parts: Sequence[Rows]) -> Rows:
    starts = itertools.accumulate((len(part.keys) for part in parts), initial=0)
    return Rows(
        keys=tuple(itertools.chain.from_iterable(part.keys for part in parts)),
        files=np.concatenate([part.files + np.uint32(start) for part, start in zip(parts, starts, strict=False)]),
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _VALUES},
    )


class _File(NamedTuple):
    path: Path
    rows: Rows


class LocalIndex:
    """The vectors of one model on this machine; several processes may use it at once."""

    def __init__(self, folder: Path, model: ModelIdentity) -> None:
        """Open the files of earlier searches for a model, in a folder for all models; a damaged one is removed."""
        self._model = model
        self._folder = folder / json_digest(model.model_dump(mode="json"))
        self._files: list[_File] = []
        self._keys = pl.Series([], dtype=pl.String)
        self._open(sorted(self._folder.glob("*.arrow")))

    def missing(self, keys: pl.Series) -> list[str]:
        """Return the distinct keys of embedding files whose vectors are not in the index."""
        return keys.filter(~keys.is_in(self._keys.drop_nulls().implode())).unique(maintain_order=True).to_list()

    def add(self, keys: Sequence[str], cache: VectorCache) -> dict[str, str]:
        """Read embedding files, and write their vectors, merged with those of files that are less than half full.

        Return reasons why embedding files are invalid, by key.

        Raises:
            StoreUnavailableError: The store is unavailable.
        """
        refused: dict[str, str] = {}
        found = self._read_all(keys, cache, refused)
        first = next(found, None)
        if first is None:
            return refused
        full = _FILE_BYTES // (2 * first.codes.shape[1])
        files = list(zip(self._files, self._split(self._keys.is_not_null()), strict=True))
        small = [(file, is_first) for file, is_first in files if len(file.rows) < _LEAST_SHARE * full]
        earlier = (file.rows.take(is_first) for file, is_first in small)
        paths = [self._write(part) for part in _pack(itertools.chain(earlier, [first], found), full)]
        self._remove([file for file, _ in small])
        self._open(paths)
        return refused

    def forget_all_but(self, keys: pl.Series) -> None:
        """Remove the files less than half of which is in use; the part in use must be added again."""
        unused = []
        for file, numbers in zip(self._files, self._split(self._numbers(keys)), strict=True):
            in_use = np.count_nonzero(numbers[file.rows.files] >= 0)
            if in_use < _LEAST_SHARE * len(file.rows):
                unused.append(file)
        self._remove(unused)

    def search(self, keys: pl.Series) -> IndexSearch:
        """Return a search over some embedding files with distinct keys, numbered by position."""
        split = self._split(self._numbers(keys))
        parts = [_Part.of(file.rows, numbers) for file, numbers in zip(self._files, split, strict=True)]
        return IndexSearch(tuple(part for part in parts if len(part)))

    def videos(self, keys: pl.Series) -> IndexedVideos:
        """Return the vectors of some embedding files with distinct keys, numbered by position."""
        places: list[tuple[Rows, slice] | None] = [None] * len(keys)
        for file, numbers in zip(self._files, self._split(self._numbers(keys)), strict=True):
            ends = np.searchsorted(file.rows.files, np.arange(len(numbers) + 1))
            for at in np.flatnonzero(numbers >= 0):
                places[numbers[at]] = (file.rows, slice(ends[at], ends[at + 1]))
        return IndexedVideos(tuple(places), self._files[0].rows.codes.shape[1] if self._files else 0)

    def _open(self, paths: Sequence[Path]) -> None:
        for path in paths:
            try:
                self._files.append(_File(path, open_rows(path)))
            except FileNotFoundError:  # another search has replaced it
                continue
            except FrameFileError:
                path.unlink(missing_ok=True)
        self._list_keys()

    def _list_keys(self) -> None:
        """List the keys of all files, one after another; null if an earlier file has the same key."""
        keys = pl.Series(itertools.chain.from_iterable(file.rows.keys for file in self._files), dtype=pl.String)
        self._keys = pl.select(pl.when(keys.is_first_distinct()).then(keys)).to_series()

    def _numbers(self, keys: pl.Series) -> pl.Series:
        """Return the position of each key of the files in a selection; -1 if it is not selected."""
        wanted = pl.DataFrame({"key": keys, "number": np.arange(len(keys))})
        found = pl.DataFrame({"key": self._keys}).join(wanted, on="key", how="left", maintain_order="left")
        return found["number"].fill_null(-1)

    def _split(self, by_key: pl.Series) -> list[npt.NDArray[Any]]:
        """Return values of all keys, file by file."""
        ends = np.cumsum([len(file.rows.keys) for file in self._files])
        return np.split(by_key.to_numpy(), ends[:-1]) if len(ends) else []

    def _read_all(self, keys: Sequence[str], cache: VectorCache, refused: dict[str, str]) -> Iterator[Rows]:
        with ThreadPoolExecutor(_READERS) as readers:
            for start in range(0, len(keys), _VIDEOS_AHEAD):
                part = keys[start : start + _VIDEOS_AHEAD]
                for key, rows in zip(part, readers.map(lambda key: self._read(key, cache), part), strict=True):
                    if isinstance(rows, str):
                        refused[key] = rows
                    elif len(rows):
                        yield rows

    def _read(self, key: str, cache: VectorCache) -> Rows | str:
        """Read an embedding file, or return why it is invalid."""
        try:
            embeddings, model = cache.read_stored(key)
        except (FrameFileError, ObjectMissingError) as error:
            return error.message
        if model != self._model:
            return f"Its vectors are those of the model {name_version(model)}."
        codes, fine, scales = quantize(embeddings.vectors)
        files, pts_ms = np.zeros(len(codes), np.uint32), embeddings.pts_ms
        return Rows(keys=(key,), files=files, pts_ms=pts_ms, scales=scales, codes=codes, fine=fine)

    def _write(self, rows: Rows) -> Path:
        path = self._folder / f"{secrets.token_hex(16)}.arrow"
        unfinished = path.with_suffix(".part")
        with disk_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for left in self._folder.glob("*.part"):
                if left.stat().st_mtime < time.time() - _LEFT_AFTER_S:
                    left.unlink(missing_ok=True)
            try:
                unfinished.write_bytes(rows.encode())
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
        return path

    def _remove(self, files: Sequence[_File]) -> None:
        for file in files:
            file.path.unlink(missing_ok=True)
        removed = {file.path for file in files}
        self._files = [file for file in self._files if file.path not in removed]
        self._list_keys()


def _pack(parts: Iterator[Rows], full: int) -> Iterator[Rows]:
    """Join vectors to parts of at most `full` rows, without splitting videos."""
    waiting: list[Rows] = []
    count = 0
    for part in parts:
        if waiting and count + len(part) > full:
            yield _join(waiting)
            waiting, count = [], 0
        if len(part):
            waiting.append(part)
            count += len(part)
    if waiting:
        yield _join(waiting)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """A file, and which of its vectors are searched."""

    rows: Rows
    numbers: npt.NDArray[np.int64]  # position of each of its videos in the selection, or -1; shape (keys,)
    searched: npt.NDArray[np.int64] | None  # rows that are searched, ascending; None for all; shape (K,)

    @classmethod
    def of(cls, rows: Rows, numbers: npt.NDArray[np.int64]) -> _Part:
        is_wanted = numbers >= 0
        searched = None if is_wanted.all() else np.flatnonzero(is_wanted[rows.files])
        return cls(rows=rows, numbers=numbers, searched=searched)

    def __len__(self) -> int:
        return len(self.rows) if self.searched is None else len(self.searched)

    def best(
        self, start: int, query: npt.NDArray[np.float32], limit: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return the cosines of the best rows of a block by their first bytes, and the rows, unordered."""
        block = slice(start, min(len(self), start + _BLOCK_ROWS))
        rows = np.arange(block.start, block.stop) if self.searched is None else self.searched[block]
        scores = score_rows(self.rows.codes, self.rows.scales, block if self.searched is None else rows, query)
        if len(scores) > limit:
            near = np.argpartition(-scores, limit)[:limit]
            return scores[near], rows[near]
        return scores, rows

    def refine(self, rows: npt.NDArray[np.int64], query: npt.NDArray[np.float32]) -> Hits:
        """Return rows with their cosines by both bytes."""
        of = self.rows
        scores = np.vecdot(dequantize(of.codes[rows], of.fine[rows], of.scales[rows]), query)
        return Hits(scores=scores, files=self.numbers[of.files[rows]], pts_ms=of.pts_ms[rows])


@dataclass(frozen=True, slots=True)
class IndexSearch:
    """Compares the vectors of a selection with a query. Thread-safe."""

    _parts: tuple[_Part, ...] = field(repr=False)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def find(self, query: npt.NDArray[np.float32], *, limit: int) -> Hits:
        """Find up to `limit` frames that fit a vector of length 1 best, best first.

        Their cosines are correct to about a millionth.
        """
        rank = _CANDIDATES * limit + _MORE_CANDIDATES
        blocks = [(part, start) for part in self._parts for start in range(0, len(part), _BLOCK_ROWS)]
        with ThreadPoolExecutor(usable_cores()) as pool:
            scored = list(pool.map(lambda block: block[0].best(block[1], query, rank), blocks))
        least = _score_of_rank([scores for scores, _ in scored], rank)
        near = (
            part.refine(np.sort(rows[scores >= least]), query)
            for (part, _), (scores, rows) in zip(blocks, scored, strict=True)
        )
        return top_hits(near, limit)


@dataclass(frozen=True, slots=True)
class IndexedVideos:
    """The vectors of a selection by video; empty for videos that could not be read."""

    _places: tuple[tuple[Rows, slice] | None, ...] = field(repr=False)
    _dimensions: int

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int) -> npt.NDArray[np.float32]:
        """Return the vectors of a video; shape (frames, D)."""
        if (place := self._places[number]) is None:
            return np.zeros((0, self._dimensions), np.float32)
        rows, part = place
        return dequantize(rows.codes[part], rows.fine[part], rows.scales[part])


def _score_of_rank(scores: list[npt.NDArray[np.float32]], rank: int) -> float:
    """Return the `rank`-th highest score; -inf if there are fewer."""
    if sum(map(len, scores)) <= rank:
        return -np.inf
    return float(-np.partition(-np.concatenate(scores), rank - 1)[rank - 1])
