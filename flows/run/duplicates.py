"""Jobs of a manifest that ask the same about videos that show the same, of which one is asked for all."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from reelabel.errors import ConfigurationError
from reelabel.text import pluralize
from tasks.domain import MAX_JOBS
from tasks.embedding.encoder import read_encoder_card
from tasks.frame_cache.pool import current_fingerprints, video_store
from tasks.manifest.check import without_questions
from tasks.manifest.digests import job_digests
from tasks.manifest.schema import ROW
from tasks.results.search_catalogue import DatabaseCatalogue
from tasks.search.catalogue import require_model
from tasks.search.duplicates import group_duplicates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Engine

    from infra.settings import Settings
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import RunSpec
    from tasks.manifest.table import JobTable

_LOG = logging.getLogger("reelabel")
_SEEN = {ROW: pl.UInt32, **dict.fromkeys(("job_id", "video_digest", "question", "fingerprint", "key"), pl.String)}
_PART = ("start_s", "end_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateJobs:
    """The groups of a manifest's jobs.

    Attributes:
        rows: Row of each job in a group, `group`, and `fingerprint`, as of `Job`; in the order in which they are asked.
        unseen: Number of jobs of the manifest whose video has no vectors.
        jobs: Number of all jobs of the manifest.
    """

    rows: pl.DataFrame = field(repr=False)
    unseen: int
    jobs: int

    @property
    def warning(self) -> str:
        """Say, in a clause, how many jobs are asked because nothing is known of their videos; empty if none is."""
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
        """Say how many jobs of a selection are asked, and how many get the answers of others."""
        copies = len(self.copies(selected))
        asked = pluralize(len(selected) - copies, "job")
        return f"Once per duplicate: {asked} to ask, whose answers are copied to {copies:,} more."

    def grouped(self, parts: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Add the columns `group` and `fingerprint` to jobs; those that have a group are together, in the last part."""
        together = []
        for part in parts:
            known = part.join(self.rows, on=ROW, how="left", maintain_order="left")
            together.append(known.filter(pl.col("group").is_not_null()))
            yield known.filter(pl.col("group").is_null())
        if together:
            yield pl.concat(together)


def find_duplicate_jobs(jobs: JobTable, settings: Settings, database: Engine, spec: RunSpec) -> DuplicateJobs:
    """Group the jobs of a manifest by the vectors that `describe` has stored of their videos as they are now.

    Jobs that show several videos or images are in no group.

    Raises:
        ConfigurationError: No video was described by `describe.model`, or jobs are cut into chunks.
    """
    if spec.chunk_s is not None:
        raise ConfigurationError(
            "once_per_duplicate copies answers about whole videos, and not about chunks; leave out it or chunk_s."
        )
    assert spec.once_per_duplicate is not None
    identity, catalogue = read_encoder_card(settings).identity, DatabaseCatalogue(database)
    require_model(catalogue.models(), identity)
    versions, videos = catalogue.versions(identity), video_store(settings)
    seen = pl.concat([pl.DataFrame(schema=_SEEN), *(_seen(part, versions, videos) for part in jobs.parts())])
    files = catalogue.files(identity).filter(pl.col("key").is_in(seen["key"].implode())).sort("key")
    found = group_duplicates(
        settings,
        identity,
        files,
        least=spec.once_per_duplicate,
        cliques=True,  # any of a group may be the one that is asked
        note=partial(_LOG.debug, "%s"),
        warn=_LOG.warning,
    )
    near = seen.join(found.select("key", "group"), on="key").sort("group").unique(ROW, keep="first")
    return DuplicateJobs(rows=_named(near), unseen=len(jobs) - seen[ROW].n_unique(), jobs=len(jobs))


def _seen(part: pl.DataFrame, versions: pl.DataFrame, videos: ObjectStore) -> pl.DataFrame:
    """Return, with the columns of `_SEEN`, the jobs of a part whose video is one that was described, in that version.

    A job has a row for each embedding file of its video.
    """
    part = part.filter(pl.col("media").is_null())
    uris = part["video_uri"].to_list()
    texts = [text and text.replace(uri, "") for text, uri in zip(part["messages"].to_list(), uris, strict=True)]
    question = part.with_columns(
        pl.Series("messages", texts, dtype=pl.String), video_uri=pl.lit(""), **dict.fromkeys(_PART, None)
    )
    asked = part.select(
        *(ROW, "job_id", "video_uri"),
        job_digests(without_questions(part)).alias("video_digest"),
        # The task may decide how frames are sampled.
        pl.concat_str(job_digests(question), pl.col("task").fill_null(""), separator=" ").alias("question"),
    )
    described = asked.join(versions, on="video_digest")
    shown = described["video_uri"].unique().sort()
    now = pl.Series("fingerprint", current_fingerprints(videos, shown.to_list()), dtype=pl.String)
    known = pl.DataFrame([shown, now])
    is_same = pl.col("fingerprint") == pl.col("source_fingerprint")
    return described.join(known, on="video_uri").filter(is_same).select(*_SEEN)


def _named(near: pl.DataFrame) -> pl.DataFrame:
    """Name groups, of at most as many jobs as a shard has, so that questions about the same videos are adjacent."""
    ordered = near.sort("group", "question", "video_digest", "job_id")
    number = pl.int_range(pl.len()).over("group", "question") // MAX_JOBS
    name = pl.format("{}/{}/{}", pl.col("group").cast(pl.String).str.zfill(10), "question", number)
    named = ordered.select(ROW, group=name, fingerprint="fingerprint")
    return named.filter(pl.len().over("group") > 1)
