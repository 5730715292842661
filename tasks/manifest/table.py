"""A manifest's jobs as columns on disk: checked and digested once, then taken up part by part."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from infra.errors import ManifestError
from infra.spill import Spill
from infra.temporary import temporary_folder
from tasks.manifest.check import check_rows, conform, repeated_ids
from tasks.manifest.digests import columns_of, job_digests
from tasks.manifest.fault import Fault
from tasks.manifest.messages import resolve_messages
from tasks.manifest.parquet import open_manifest
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from infra.objects import ObjectStore
    from tasks.domain import Job
    from tasks.manifest.parquet import ManifestFiles

_ROWS_PER_PART = 200_000
_HASH_BYTES = 8
# The last three characters of a name, whatever its ending: of numbered ones, a thousand have the rest in common.
_OWN_PART = r"[^/]{1,3}(\.[^/.]*)?$"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobTable:
    """Jobs of a good manifest: all of them, or those that were chosen.

    Attributes:
        here: Whether each row of the manifest is one of them; shape (rows of the manifest,).
    """

    here: npt.NDArray[np.bool_] = field(repr=False)
    _parts: tuple[Callable[[], pl.DataFrame | None], ...] = field(repr=False)

    def __len__(self) -> int:
        """Give how many there are."""
        return int(self.here.sum())

    @property
    def rows(self) -> int:
        """How many rows the manifest has."""
        return len(self.here)

    def parts(self) -> Iterator[pl.DataFrame]:
        """Give the jobs, some hundred thousand at a time, those of one video together.

        Each frame has the manifest's columns, `row` (the job's place in the manifest, from 0),
        `job_digest` and `neighbourhood`: a hash that videos with nearly the same URI share, no smaller in a part
        than in the one before.
        """
        for read in self._parts:
            frame = read()
            if frame is not None:
                is_here = self.here[frame[ROW].to_numpy()]
                yield frame if is_here.all() else frame.filter(is_here)

    def count_videos(self) -> int:
        """Count the videos that they are about."""
        return sum(part["video_uri"].n_unique() for part in self.parts())

    def chosen(self, rows: npt.NDArray[np.bool_]) -> JobTable:
        """Leave jobs out.

        Args:
            rows: Whether each row of the manifest is chosen; shape (self.rows,).
        """
        return replace(self, here=self.here & rows)

    def first(self, most: int | None) -> JobTable:
        """Leave out all but the first jobs of the manifest; None leaves out none."""
        here = np.zeros_like(self.here)
        here[np.flatnonzero(self.here)[:most]] = True
        return replace(self, here=here)


@contextmanager
def open_jobs(uri: str, objects: ObjectStore, *, only: pl.Series | None = None) -> Iterator[JobTable]:
    """Read and check a manifest into a temporary folder; memory does not grow with its rows but for some bytes each.

    Args:
        uri: Parquet file, or glob of such, local or `s3://`.
        objects: Where `s3://` leads.
        only: Ids of the jobs to read and check; empty takes all. Those that are not in the manifest are ignored.

    Raises:
        ManifestError: Every fault, with its first rows and counts; nothing may start.
    """
    with temporary_folder("jobs") as folder:
        with open_manifest(uri, objects) as files:
            chosen = None if only is None else _places(files, only)
            most = files.rows if chosen is None else int(chosen.sum())
            spill = Spill(folder, parts=1 + most // _ROWS_PER_PART)
            jobs, faults = _check_into(spill, numbered_batches(files, only=chosen))
            _refuse(uri, [*faults, *_repeated_ids(numbered_batches(files, only=chosen), jobs["hash"])])
        here = np.zeros(files.rows, np.bool_)
        here[jobs[ROW].to_numpy()] = True
        yield JobTable(here=here, _parts=tuple(partial(spill.read, part) for part in range(spill.parts)))


def table_of(jobs: Sequence[Job]) -> JobTable:
    """Make a table of a few jobs, which stays in memory."""
    frame = _with_neighbourhood(columns_of(jobs))
    return JobTable(here=np.ones(len(jobs), np.bool_), _parts=(lambda: frame,))


def numbered_batches(files: ManifestFiles, *, only: npt.NDArray[np.bool_] | None = None) -> Iterator[pl.DataFrame]:
    """Give a manifest's rows in its order, with the manifest's columns alone and `row`.

    Args:
        files: The manifest.
        only: Whether each row is wanted; shape (files.rows,).

    Raises:
        ManifestError: A column is missing or has the wrong type, there is no row, or a file is damaged.
    """
    _, faults = conform(files.empty)
    if not (faults or files.rows):
        faults = [Fault(rule="The manifest has no rows.")]
    _refuse(files.uri, faults)
    chosen = None if only is None else np.flatnonzero(only)
    start = 0
    for batch in files.batches(only=only):
        stop = start + len(batch)
        rows = np.arange(start, stop) if chosen is None else chosen[start:stop]
        yield conform(batch)[0].insert_column(0, pl.Series(ROW, rows, dtype=pl.UInt32))
        start = stop


def asked_batches(files: ManifestFiles) -> Iterator[pl.DataFrame]:
    """Give what a manifest asks, faulty or not: its rows with their messages resolved, `row` and `job_digest`.

    Raises:
        ManifestError: As for `numbered_batches`.
    """
    for batch in numbered_batches(files):
        resolved, _ = resolve_messages(batch)
        yield resolved.with_columns(job_digests(resolved))


def _refuse(uri: str, faults: Collection[Fault]) -> None:
    if faults:
        raise ManifestError(f"{uri} cannot be run:\n" + "\n".join(f"  - {fault}" for fault in faults))


def _places(files: ManifestFiles, ids: pl.Series) -> npt.NDArray[np.bool_]:
    """Tell of each row of a manifest whether its id is one of `ids`."""
    wanted = ids.unique().implode()
    found = (conform(batch)[0]["job_id"].is_in(wanted).fill_null(value=False) for batch in files.ids())
    return np.concatenate([np.zeros(0, np.bool_), *(each.to_numpy() for each in found)])


def _check_into(spill: Spill, batches: Iterable[pl.DataFrame]) -> tuple[pl.DataFrame, list[Fault]]:
    """Spill rows by their videos' neighbourhood.

    Returns:
        Each row's number and its id's `hash`, and what is wrong with the rows.
    """
    faults: dict[str, Fault] = {}
    jobs = [pl.DataFrame(schema={ROW: pl.UInt32, "hash": pl.UInt64})]
    with spill:
        for batch in batches:
            checked, found = check_rows(batch)
            for fault in found:
                faults[fault.rule] = faults[fault.rule] + fault if fault.rule in faults else fault
            jobs.append(batch.select(ROW, hash=pl.col("job_id").hash()))
            if not faults:
                spill.add(_with_neighbourhood(checked.with_columns(job_digests(checked))), _part(spill.parts))
    return pl.concat(jobs), list(faults.values())


def _repeated_ids(batches: Iterable[pl.DataFrame], hashes: pl.Series) -> list[Fault]:
    """Look once more at the rows whose ids have one hash: 64 bits alone prove no fault."""
    doubtful = hashes.is_duplicated()
    if not doubtful.any():
        return []
    found, place = [], 0
    for batch in batches:
        found.append(batch.select(ROW, "job_id").filter(doubtful.slice(place, len(batch))))
        place += len(batch)
    return repeated_ids(pl.concat(found))


def _with_neighbourhood(frame: pl.DataFrame) -> pl.DataFrame:
    """Add `neighbourhood`, which is the same on every machine."""
    near = frame.with_columns(near=pl.col("video_uri").str.replace(_OWN_PART, ""))
    names = near.select(pl.col("near").unique())
    hashes = [
        int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_HASH_BYTES).digest(), "big")
        for name in names["near"].to_list()
    ]
    hashed = names.with_columns(neighbourhood=pl.Series(hashes, dtype=pl.UInt64))
    return near.join(hashed, on="near", how="left").drop("near")


def _part(parts: int) -> pl.Expr:
    """Cut the range of `neighbourhood` into equal parts."""
    return (pl.col("neighbourhood") // 2**32) * parts // 2**32
