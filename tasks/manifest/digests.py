"""Digests of jobs, computed by column, without creating a `Job` for each."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import polars as pl

from reelabel.digest import DIGEST_LENGTH
from tasks.domain import Job
from tasks.manifest.schema import COLUMNS, ROW

if TYPE_CHECKING:
    from collections.abc import Sequence

# Columns that most rows leave empty; the other rows are digested one by one.
_RARE = ("start_s", "end_s", "messages", "template", "examples")
# The keys of `Job.digest` in their order; Polars writes strings as `json.dumps(..., ensure_ascii=False)` does.
_TEXT = pl.struct(
    "choices",
    end_s=pl.lit(None, dtype=pl.String),
    messages=pl.lit(None, dtype=pl.String),
    prompt="prompt",
    start_s=pl.lit(None, dtype=pl.String),
    system_prompt="system_prompt",
    video_uri="video_uri",
).struct.json_encode()


def job_digests(frame: pl.DataFrame) -> pl.Series:
    """Compute each row's `Job.digest`.

    Args:
        frame: A manifest's columns, with messages resolved.

    Returns:
        A string column `job_digest`; null where the row's messages are not JSON.
    """
    texts = frame.select(_TEXT.cast(pl.Binary)).to_series().to_list()
    digests: list[str | None] = [sha256(text).hexdigest()[:DIGEST_LENGTH] for text in texts]
    is_rare = frame.select(pl.any_horizontal(pl.col(name).is_not_null() for name in _RARE)).to_series()
    for place, job in zip(is_rare.arg_true(), rows_to_jobs(frame.filter(is_rare)), strict=True):
        digests[place] = _digest(job)
    return pl.Series("job_digest", digests, dtype=pl.String)


def rows_to_jobs(frame: pl.DataFrame) -> list[Job]:
    """Convert a manifest's rows to jobs."""
    rows = frame.select(*COLUMNS).iter_rows(named=True)
    return [Job(**row | {"choices": tuple(row["choices"] or ())}) for row in rows]


def _digest(job: Job) -> str | None:
    try:
        return job.digest
    except ValueError:
        return None


def jobs_to_rows(jobs: Sequence[Job]) -> pl.DataFrame:
    """Convert jobs to rows, with `row` and `job_digest`."""
    columns = {name: [getattr(job, name) for job in jobs] for name in COLUMNS}
    digests = {"job_digest": [job.digest for job in jobs]}
    return pl.DataFrame(columns | digests, schema=COLUMNS | {"job_digest": pl.String}).with_row_index(ROW)
