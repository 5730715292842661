"""Groups of jobs with the same question about near-duplicate videos, of which only one is answered."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from infra.spill import Spill
from infra.temporary import temporary_folder
from reelabel.errors import ConfigurationError
from reelabel.text import pluralize
from tasks.domain import MAX_JOBS
from tasks.embedding.encoder import read_encoder_info
from tasks.frame_cache.pool import current_fingerprints, video_store
from tasks.manifest.check import without_questions
from tasks.manifest.digests import job_digests
from tasks.manifest.schema import ROW
from tasks.results.search_catalogue import DatabaseCatalogue
from tasks.search.catalogue import require_model
from tasks.search.duplicates import group_duplicates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from infra.settings import Settings
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import RunSpec
    from tasks.manifest.table import JobTable

_LOG = logging.getLogger("reelabel")
_DESCRIBED = {ROW: pl.UInt32, **dict.fromkeys(("job_id", "video_digest", "question", "fingerprint", "key"), pl.String)}
_PART = ("start_s", "end_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateJobs:
    """The groups of a manifest's jobs.

    Attributes:
        rows: One row per job in a group: its `row` in the manifest, `group` and `fingerprint` (see `Job`).
        unseen: Number of jobs of the manifest, each on one video, whose video has no vectors.
        jobs: Number of all jobs of the manifest.
    """

    rows: pl.DataFrame = field(repr=False)
    unseen: int
    jobs: int

    @property
    def warning(self) -> str:
        """A clause on the jobs that are in no group because their videos have no vectors; empty if there are none."""
        if not self.unseen:
            return ""
        return (
            f"{self.unseen:,} of {pluralize(self.jobs, 'job')} have no vectors of their video as it is now, and are "
            "asked as always; to compare them, describe them first"
        )

    def copies(self, selected: JobTable) -> JobTable:
        """Return the jobs of a selection that get the answer of another one."""
        here = self.rows.filter(selected.here[self.rows[ROW].to_numpy()])
        is_copy = np.zeros(selected.rows, np.bool_)
        is_copy[here.filter(~pl.col("group").is_first_distinct())[ROW].to_numpy()] = True
        return selected.chosen(is_copy)

    def describe(self, selected: JobTable) -> str:
        """Count, in a sentence, the jobs of a selection that are answered and those that get a copy."""
        copies = len(self.copies(selected))
        to_ask = pluralize(len(selected) - copies, "job")
        return f"Once per duplicate: {to_ask} to ask, whose answers are copied to {copies:,} more."

    def grouped(self, jobs: JobTable) -> Iterator[pl.DataFrame]:
        """Yield jobs with the columns `group` and `fingerprint`, in parts of about the same size as the table's.

        Jobs without a group come first; no group is split between parts.
        """
        place = pl.col("group").rank("dense").cast(pl.Int64) - 1
        rows = self.rows.with_columns(part=place * jobs.part_count // pl.col("group").n_unique())
        with temporary_folder("jobs") as folder:
            together = Spill(folder, parts=jobs.part_count)
            with together:
                for part in jobs.parts():
                    known = part.join(rows, on=ROW, how="left", maintain_order="left")
                    is_alone = pl.col("group").is_null()
                    having = known.filter(~is_alone)
                    together.add(having.drop("part"), having["part"])
                    yield known.filter(is_alone).drop("part")
            for number in range(together.parts):
                if (groups := together.read(number)) is not None:
                    yield groups


def find_duplicate_jobs(jobs: JobTable, settings: Settings, database: Engine, spec: RunSpec) -> DuplicateJobs:
    """Group the jobs of a manifest by the vectors that `describe` has stored for the current versions of their videos.

    Jobs that show several videos or images are in no group.

    Raises:
        ConfigurationError: No video was described by `describe.model`, or jobs are cut into chunks.
    """
    if spec.chunk_s is not None:
        raise ConfigurationError(
            "once_per_duplicate copies answers about whole videos, and not about chunks; leave it out, or set chunk_s "
            "to 0."
        )
    assert spec.once_per_duplicate is not None
    identity, catalogue = read_encoder_info(settings).identity, DatabaseCatalogue(database)
    require_model(catalogue.models(), identity)
    versions, videos = catalogue.versions(identity), video_store(settings)
    on_one_video, parts = 0, [pl.DataFrame(schema=_DESCRIBED)]
    for part in jobs.parts():
        alone = part.filter(pl.col("media").is_null())
        on_one_video += len(alone)
        parts.append(_described_jobs(alone, versions, videos))
    described = pl.concat(parts)
    files = catalogue.files(identity).filter(pl.col("key").is_in(described["key"].implode())).sort("key")
    found = group_duplicates(
        settings,
        identity,
        files,
        least=spec.once_per_duplicate,
        cliques=True,  # any of a group may be the one that is asked
        note=partial(_LOG.debug, "%s"),
        warn=_LOG.warning,
    )
    near = described.join(found.select("key", "group"), on="key").sort("group").unique(ROW, keep="first")
    return DuplicateJobs(rows=_name_groups(near), unseen=on_one_video - described[ROW].n_unique(), jobs=len(jobs))


def _described_jobs(part: pl.DataFrame, versions: pl.DataFrame, videos: ObjectStore) -> pl.DataFrame:
    """Return the jobs whose video has vectors of its current version, with the columns of `_DESCRIBED`.

    Each job is on one video, and has a row for each embedding file of that video.
    """
    uris = part["video_uri"].to_list()
    texts = [text and text.replace(uri, "") for text, uri in zip(part["messages"].to_list(), uris, strict=True)]
    question = part.with_columns(
        pl.Series("messages", texts, dtype=pl.String), video_uri=pl.lit(""), **dict.fromkeys(_PART, None)
    )
    questions = part.select(
        *(ROW, "job_id", "video_uri"),
        job_digests(without_questions(part)).alias("video_digest"),
        # The tags may decide how frames are sampled.
        pl.concat_str(job_digests(question), pl.col("task", "subtask").fill_null(""), separator="\0").alias("question"),
    )
    described = questions.join(versions, on="video_digest")
    shown = described["video_uri"].unique().sort()
    now = pl.Series("fingerprint", current_fingerprints(videos, shown.to_list()), dtype=pl.String)
    known = pl.DataFrame([shown, now])
    is_same = pl.col("fingerprint") == pl.col("source_fingerprint")
    return described.join(known, on="video_uri").filter(is_same).select(*_DESCRIBED)


def _name_groups(near: pl.DataFrame) -> pl.DataFrame:
    """Split groups by question, into at most `MAX_JOBS` jobs each; those on the same videos have adjacent names."""
    ordered = near.sort("group", "question", "video_digest", "job_id")
    number = pl.int_range(pl.len()).over("group", "question") // MAX_JOBS
    name = pl.format("{}/{}/{}", pl.col("group").cast(pl.String).str.zfill(10), "question", number)
    named = ordered.select(ROW, group=name, fingerprint="fingerprint")
    return named.filter(pl.len().over("group") > 1)
