"""Digests of jobs, computed by column, without creating a `Job` for each."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import polars as pl

from reelabel.digest import DIGEST_LENGTH
from reelabel.sources.object_info import unsigned_uri
from tasks.domain import Job, Medium
from tasks.manifest.schema import JOB_COLUMNS, ROW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Columns that most rows leave empty; the other rows are digested one by one.
_RARE = ("start_s", "end_s", "messages", "template", "examples", "schema", "media")
_CHOICES = pl.col("choices")
# The keys of `Job.digest` in their order; Polars writes strings as `json.dumps(..., ensure_ascii=False)` does.
_TEXT = pl.struct(
    pl.when(_CHOICES.is_null()).then(pl.lit([], dtype=pl.List(pl.String))).otherwise(_CHOICES).alias("choices"),
    end_s=pl.lit(None, dtype=pl.String),
    messages=pl.lit(None, dtype=pl.String),
    prompt="prompt",
    start_s=pl.lit(None, dtype=pl.String),
    system_prompt="system_prompt",
    video_uri="video_uri",
).struct.json_encode()


def job_digests(frame: pl.DataFrame) -> pl.Series:
    """Compute `Job.digest` of each row as the column `job_digest`; null where the messages are not JSON."""
    unsigned = frame.with_columns(_without_signatures(frame["video_uri"]))
    texts = unsigned.select(_TEXT.cast(pl.Binary)).to_series().to_list()
    digests: list[str | None] = [sha256(text).hexdigest()[:DIGEST_LENGTH] for text in texts]
    is_rare = frame.select(pl.any_horizontal(pl.col(name).is_not_null() for name in _RARE)).to_series()
    for place, job in zip(is_rare.arg_true(), rows_to_jobs(frame.filter(is_rare)), strict=True):
        digests[place] = None
        with suppress(ValueError):
            digests[place] = job.digest
    return pl.Series("job_digest", digests, dtype=pl.String)


def _without_signatures(uris: pl.Series) -> pl.Series:
    signed = uris.str.contains("?", literal=True).arg_true()
    if signed.is_empty():
        return uris
    return uris.clone().scatter(signed, list(map(unsigned_uri, uris.gather(signed))))


def rows_to_jobs(frame: pl.DataFrame) -> list[Job]:
    return [job_of(row) for row in frame.select(*JOB_COLUMNS).iter_rows(named=True)]


def job_of(row: Mapping[str, Any]) -> Job:
    media = row.get("media")
    shown = media and tuple(Medium(**medium) for medium in media)
    return Job(**{**row, "choices": tuple(row["choices"] or ()), "media": shown})


def jobs_to_rows(jobs: Sequence[Job]) -> pl.DataFrame:
    """Convert jobs to rows with the columns of jobs, `row` and `job_digest`."""
    columns = {name: [getattr(job, name) for job in jobs] for name in JOB_COLUMNS}
    columns["media"] = [job.media and [medium._asdict() for medium in job.media] for job in jobs]
    columns["job_digest"] = [job.digest for job in jobs]
    return pl.DataFrame(columns, schema=JOB_COLUMNS | {"job_digest": pl.String}).with_row_index(ROW)
