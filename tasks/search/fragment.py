"""A fragment of the index: an Arrow file of up to 128 MiB of vectors, sorted by list, which is never changed.

Columns: `list` (int32, ascending), `file` (uint32, the position in the fragment's keys), `pts_ms` (int64), `scale`
(float32), and `code` and `fine` (fixed-size lists of int8). Its keys are in a file of their own.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from reelabel import arrow as pa
from reelabel.errors import FrameFileError
from tasks.search.codes import LARGEST_SCALE

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

_FRAGMENT_BYTES = 128 * 1024**2
_TYPES = {"list": np.int32, "file": np.uint32, "pts_ms": np.int64, "scale": np.float32}


def rows_per_fragment(dimensions: int) -> int:
    """Return how many vectors a full fragment has."""
    return _FRAGMENT_BYTES // (2 * dimensions)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Vectors of several files, as codes.

    Attributes:
        lists: List of each; shape (N,), int32.
        files: Which file of the fragment's keys; shape (N,), uint32.
        pts_ms: Time in milliseconds; shape (N,), int64.
        scales: What to multiply each code with; shape (N,), float32.
        codes: First bytes; shape (N, D), int8.
        fine: Second bytes; shape (N, D), int8.
    """

    lists: npt.NDArray[np.int32] = field(repr=False)
    files: npt.NDArray[np.uint32] = field(repr=False)
    pts_ms: npt.NDArray[np.int64] = field(repr=False)
    scales: npt.NDArray[np.float32] = field(repr=False)
    codes: npt.NDArray[np.int8] = field(repr=False)
    fine: npt.NDArray[np.int8] = field(repr=False)

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: npt.NDArray[np.int64]) -> Rows:
        """Return copies of some rows."""
        return Rows(
            lists=self.lists[rows],
            files=self.files[rows],
            pts_ms=self.pts_ms[rows],
            scales=self.scales[rows],
            codes=self.codes[rows],
            fine=self.fine[rows],
        )

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each list starts, if rows are sorted; list n has the rows starts[n] to starts[n + 1]."""
        count = int(self.lists[-1]) + 1 if len(self) else 0
        return np.searchsorted(self.lists, np.arange(count + 1)).astype(np.int64)

    def rows_of(self, lists: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows of some ascending lists, if rows are sorted; shape (K,), ascending."""
        known = lists[lists < len(self.starts) - 1]
        first, end = self.starts[known], self.starts[known + 1]
        counts = end - first
        before = np.cumsum(counts) - counts
        rows: npt.NDArray[np.int64] = np.repeat(first - before, counts) + np.arange(counts.sum())
        return rows

    def encode(self) -> bytes:
        """Return the bytes of an Arrow file of the rows, sorted by list."""
        order = np.argsort(self.lists, kind="stable")
        columns = {
            "list": pa.array(self.lists[order]),
            "file": pa.array(self.files[order]),
            "pts_ms": pa.array(self.pts_ms[order]),
            "scale": pa.array(self.scales[order]),
            "code": _list_array(self.codes[order]),
            "fine": _list_array(self.fine[order]),
        }
        return pa.arrow_file(pa.table(columns))

    @classmethod
    def open(cls, path: Path, *, rows: int, files: int, dimensions: int, lists: int) -> Self:
        """Map a fragment's file into memory; its pages are read when they are first used.

        Args:
            path: The file.
            rows: Rows that it must have.
            files: Files that it may name.
            dimensions: Size of a vector.
            lists: Lists that it may name.

        Raises:
            FrameFileError: It is damaged, or is not that fragment.
        """
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            table = pa.ipc.open_file(pa.py_buffer(mapped)).read_all().combine_chunks()
            table.validate(full=True)
            columns = {name: table[name].chunk(0).to_numpy() for name in _TYPES}
            lists_of = [table[name].chunk(0).flatten().to_numpy() for name in ("code", "fine")]
            codes, fine = (each.reshape(rows, dimensions) for each in lists_of)
        except (pa.ArrowException, OSError, KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
            raise FrameFileError(f"It is damaged ({type(error).__name__}).") from None
        order = columns["list"]
        is_sound = (
            codes.dtype == fine.dtype == np.int8
            and all(columns[name].dtype == kind and len(columns[name]) == rows for name, kind in _TYPES.items())
            and (np.diff(order) >= 0).all()
            and 0 <= order[0] <= order[-1] < lists
            and columns["file"].max() < files
            and ((columns["scale"] >= 0) & (columns["scale"] <= LARGEST_SCALE)).all()
        )
        if not is_sound:
            raise FrameFileError("It contradicts what the index says of it.")
        _read_pages_alone(mapped, fine)
        return cls(
            lists=order,
            files=columns["file"],
            pts_ms=columns["pts_ms"],
            scales=columns["scale"],
            codes=codes,
            fine=fine,
        )


def _read_pages_alone(mapped: mmap.mmap, column: npt.NDArray[np.int8]) -> None:
    """Have the system read no pages around those of a column that are used.

    Second bytes are read of a few rows here and there. With what is read ahead otherwise, up to megabytes for each row,
    they would take the memory that first bytes are kept in.
    """
    start = column.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    start += -start % mmap.PAGESIZE
    if start < len(mapped):
        mapped.madvise(mmap.MADV_RANDOM, start, min(column.nbytes, len(mapped) - start))


def _list_array(rows: npt.NDArray[np.int8]) -> Any:  # noqa: ANN401 - pyarrow
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
