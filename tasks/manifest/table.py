"""A manifest's jobs as columns on disk: checked and digested once, then read in parts."""

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
from tasks.domain import ONE_VIDEO, MediaCounts
from tasks.manifest.check import NO_ROWS, cast_columns, check_rows, find_duplicates, without_questions
from tasks.manifest.digests import job_digests, rows_to_jobs
from tasks.manifest.media import max_media, resolve_media, videos_of
from tasks.manifest.parquet import open_manifest
from tasks.manifest.rejects import (
    REJECTS,
    VIOLATIONS,
    keep_first,
    list_violations,
    reject_rows,
    shorten_list,
    without_rows,
)
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import Job
    from tasks.manifest.parquet import ManifestFiles


_ROWS_PER_PART, _BYTES_PER_PART = 200_000, 128 * 1024**2
# A part is split if it is larger than this many times the target.
_LARGEST_PARTS = 2
_HASH_BYTES = 8
# The last three characters of a file name before its extension: a thousand numbered names share the rest.
_LAST_CHARACTERS = r"[^/]{1,3}(\.[^/.]*)?$"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobTable:
    """Jobs of a valid manifest: all of them, or a selection."""

    here: npt.NDArray[np.bool_] = field(repr=False)  # whether each row of the manifest is selected; shape (rows,)
    # Whether each row of the manifest is answered in words, for lack of choices; shape (rows,).
    in_words: npt.NDArray[np.bool_] = field(repr=False)
    media: MediaCounts = ONE_VIDEO  # the largest numbers of videos and of images that a job shows, selected or not
    # The invalid rows, as `REJECTS`; always empty without `keep_going`.
    rejects: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=REJECTS), repr=False)
    _parts: tuple[Callable[[], pl.DataFrame | None], ...] = field(repr=False)

    def __len__(self) -> int:
        return int(self.here.sum())

    @property
    def rows(self) -> int:
        """Number of rows of the manifest, selected or not."""
        return len(self.here)

    @property
    def jobs_in_manifest(self) -> int:
        """Number of valid rows of the manifest, selected or not."""
        return self.rows - len(self.rejects)

    @property
    def words(self) -> int:
        """Number of selected jobs that are answered in words."""
        return int((self.here & self.in_words).sum())

    @property
    def part_count(self) -> int:
        """Upper bound of the number of data frames that `parts` yields."""
        return len(self._parts)

    def parts(self) -> Iterator[pl.DataFrame]:
        """Yield the jobs, at most about 600,000 at a time; jobs on a video are in one part.

        Only a video with 200,000 jobs, or 128 MiB of them, is in several consecutive parts. Each frame has the columns
        of jobs, `row` (the job's row in the manifest, from 0), `job_digest`, and `locality_hash`: a hash shared by
        videos with nearly the same URI, which never decreases from part to part.
        """
        for read in self._parts:
            frame = read()
            if frame is not None:
                is_here = self.here[frame[ROW].to_numpy()]
                yield frame if is_here.all() else frame.filter(is_here)

    def count_videos(self) -> int:
        """Count the distinct videos, by 64-bit hashes."""
        hashes = [videos_of(part)["uri"].unique().hash() for part in self.parts()]
        return pl.concat(hashes).n_unique() if hashes else 0

    def chosen(self, rows: npt.NDArray[np.bool_]) -> JobTable:
        """Narrow the selection to `rows`; shape (self.rows,)."""
        return replace(self, here=self.here & rows)

    def first(self, count: int | None) -> JobTable:
        """Narrow the selection to its first `count` jobs in the order of the manifest; None keeps all."""
        here = np.zeros_like(self.here)
        here[np.flatnonzero(self.here)[:count]] = True
        return replace(self, here=here)


@contextmanager
def open_jobs(
    uri: str,
    objects: ObjectStore,
    *,
    only: pl.Series | None = None,
    keep_going: bool = False,
    questions: bool = True,
) -> Iterator[JobTable]:
    """Read and validate a manifest into a temporary folder; memory grows by only a few bytes per row.

    `only` are the ids of the jobs to read and validate, if they are in the manifest. With `keep_going`, invalid rows
    are rejected instead of the manifest, unless all are; of rows with one id, the first is kept. Without `questions`,
    only the jobs' ids and videos are read.

    Raises:
        ManifestError: The manifest is invalid; the message lists all faults, with counts and first rows.
    """
    with temporary_folder("jobs") as folder:
        with open_manifest(uri, objects, questions=questions) as files:
            chosen = None if only is None else _rows_with_ids(files, only)
            rows = files.rows if chosen is None else int(chosen.sum())
            parts = 1 + max(rows // _ROWS_PER_PART, files.size_bytes // _BYTES_PER_PART)
            spill = Spill(folder, parts=parts)
            batches = partial(read_numbered_batches, files, only=chosen, questions=questions)
            jobs, found, media = _check_into(spill, batches(), keep_going=keep_going, questions=questions)
            repeated = _rows_of_repeated_ids(batches(), without_rows(jobs, found) if keep_going else jobs)
            found = pl.concat([found, find_duplicates(repeated, keep_first=keep_going)])
            rejects = reject_rows(found)
            if len(rejects) and (not keep_going or len(jobs) == len(rejects)):
                _raise_faults(uri, list_violations(found))
        here = np.zeros(files.rows, np.bool_)
        here[jobs[ROW].to_numpy()] = True
        here[rejects[ROW].to_numpy()] = False
        in_words = np.zeros(files.rows, np.bool_)
        in_words[jobs[ROW].to_numpy()] = jobs["in_words"].to_numpy()
        yield JobTable(
            here=here, in_words=in_words, media=media, rejects=rejects, _parts=tuple(_readers(spill, folder))
        )


def read_numbered_batches(
    files: ManifestFiles, *, only: npt.NDArray[np.bool_] | None = None, questions: bool = True
) -> Iterator[pl.DataFrame]:
    """Yield a manifest's rows, or those that `only` selects, in order, with the manifest's columns and `row`.

    Raises:
        ManifestError: A column is missing or has the wrong type, there are no rows, or a file is damaged.
    """
    _, faults = cast_columns(files.empty, questions=questions)
    if not (faults or files.rows):
        faults = [NO_ROWS]
    _raise_faults(files.uri, faults)
    chosen = None if only is None else np.flatnonzero(only)
    start = 0
    for batch in files.batches(only=only):
        stop = start + len(batch)
        rows = np.arange(start, stop) if chosen is None else chosen[start:stop]
        columns, _ = cast_columns(batch, questions=questions)
        yield columns.insert_column(0, pl.Series(ROW, rows, dtype=pl.UInt32))
        start = stop


def read_unchecked_batches(files: ManifestFiles, *, questions: bool = True) -> Iterator[pl.DataFrame]:
    """Yield a manifest's rows without validating them, with the columns of jobs, `row` and `job_digest`."""
    for batch in read_numbered_batches(files, questions=questions):
        resolved = resolve_media(batch)[0].drop("video_uris")
        resolved = resolved if questions else without_questions(resolved)
        yield resolved.with_columns(job_digests(resolved))


@contextmanager
def open_audited(
    uri: str, objects: ObjectStore, *, keep_going: bool, questions: bool = True
) -> Iterator[Callable[[], Iterator[pl.DataFrame]]]:
    """Open a manifest for audits, and yield a function that reads its rows with `row` and `job_digest`.

    With `keep_going`, they are those of `open_jobs`; otherwise all rows, without validating them.
    """
    if keep_going:
        with open_jobs(uri, objects, keep_going=True, questions=questions) as jobs:
            yield jobs.parts
    else:
        with open_manifest(uri, objects, questions=questions) as files:
            yield partial(read_unchecked_batches, files, questions=questions)


def _raise_faults(uri: str, faults: list[str]) -> None:
    if faults:
        raise ManifestError(f"{uri} is not a valid manifest:", shorten_list(faults))


def _rows_with_ids(files: ManifestFiles, ids: pl.Series) -> npt.NDArray[np.bool_]:
    wanted = ids.unique().implode()
    found = (cast_columns(batch)[0]["job_id"].is_in(wanted).fill_null(value=False) for batch in files.ids())
    return np.concatenate([np.zeros(0, np.bool_), *(each.to_numpy() for each in found)])


def _check_into(
    spill: Spill, batches: Iterable[pl.DataFrame], *, keep_going: bool, questions: bool
) -> tuple[pl.DataFrame, pl.DataFrame, MediaCounts]:
    """Validate rows, and spill the valid ones by their `locality_hash`.

    Return `row`, the `hash` of its id and `in_words` of all rows; their violations, as `VIOLATIONS`; and the largest
    numbers of videos and of images that a valid row shows.
    """
    jobs = [pl.DataFrame(schema={ROW: pl.UInt32, "hash": pl.UInt64, "in_words": pl.Boolean})]
    violations = [pl.DataFrame(schema=VIOLATIONS)]
    media = ONE_VIDEO
    with spill:
        for batch in batches:
            rows, found = check_rows(batch, questions=questions)
            jobs.append(batch.select(ROW, hash=pl.col("job_id").hash(), in_words=pl.col("choices").is_null()))
            if len(found):
                violations.append(found if keep_going else keep_first(found))
                rows = without_rows(rows, found)
            if keep_going or len(violations) == 1:
                media = media.larger(max_media(rows))
                spill.add(_with_locality_hash(rows.with_columns(job_digests(rows))), _part(spill.parts))
    return pl.concat(jobs), pl.concat(violations), media


def _rows_of_repeated_ids(batches: Iterable[pl.DataFrame], jobs: pl.DataFrame) -> pl.DataFrame:
    """Return `row` and `job_id` of the rows whose ids have the same `hash` in `jobs`, which alone proves nothing."""
    rows = jobs.filter(pl.col("hash").is_duplicated())[ROW].implode()
    found = [pl.DataFrame(schema={ROW: pl.UInt32, "job_id": pl.String})]
    if len(rows[0]):
        found += [batch.select(ROW, "job_id").filter(pl.col(ROW).is_in(rows)) for batch in batches]
    return pl.concat(found)


def _readers(spill: Spill, folder: Path) -> Iterator[Callable[[], pl.DataFrame | None]]:
    for part in range(spill.parts):
        shares = max(spill.rows[part] / _ROWS_PER_PART, spill.size_bytes[part] / _BYTES_PER_PART)
        if shares <= _LARGEST_PARTS:
            yield partial(spill.read, part)
            continue
        rows = max(1, int(spill.rows[part] / shares))
        split = _split_by_video(spill, part, folder / f"{part}", rows_per_part=rows)
        spill.remove(part)
        yield from (partial(split.read, each) for each in range(split.parts))


def _split_by_video(spill: Spill, part: int, folder: Path, *, rows_per_part: int) -> Spill:
    """Split a part that is too large; only a video with too many jobs for one part is itself split."""
    counts = [batch.group_by("locality_hash", "video_uri").len() for batch in spill.batches(part)]
    videos = pl.concat(counts).group_by("locality_hash", "video_uri").agg(pl.col("len").cast(pl.UInt64).sum())
    jobs = pl.col("len")
    first = (jobs.cum_sum() - jobs) // rows_per_part
    spans = videos.sort("locality_hash", "video_uri").select("video_uri", first=first, spread=1 + jobs // rows_per_part)
    folder.mkdir()
    split = Spill(folder, parts=1 + spill.rows[part] // rows_per_part)
    with split:
        for batch in spill.batches(part):
            span = batch.select("video_uri", "job_id").join(spans, on="video_uri", how="left", maintain_order="left")
            split.add(batch, span.select(pl.col("first") + pl.col("job_id").hash() % pl.col("spread")).to_series())
    return split


def _with_locality_hash(frame: pl.DataFrame) -> pl.DataFrame:
    """Add `locality_hash`, which is the same on every machine."""
    near = frame.with_columns(near=pl.col("video_uri").str.replace(_LAST_CHARACTERS, ""))
    names = near.select(pl.col("near").unique())
    hashes = [
        int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_HASH_BYTES).digest(), "big")
        for name in names["near"].to_list()
    ]
    hashed = names.with_columns(locality_hash=pl.Series(hashes, dtype=pl.UInt64))
    return near.join(hashed, on="near", how="left").drop("near")


def _part(parts: int) -> pl.Expr:
    return (pl.col("locality_hash") // 2**32) * parts // 2**32


def read_jobs(uri: str, objects: ObjectStore) -> list[Job]:
    """Read and validate a small manifest into memory; see `open_jobs`."""
    with open_jobs(uri, objects) as table:
        return rows_to_jobs(pl.concat(table.parts()).sort(ROW))
