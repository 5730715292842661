"""The digests of a column of jobs, without making a `Job` of each."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import polars as pl

from tasks.domain import Job
from tasks.domain.digest import DIGEST_LENGTH
from tasks.manifest.schema import COLUMNS, ROW

if TYPE_CHECKING:
    from collections.abc import Sequence

# What most rows leave empty; those that do not are digested one by one.
_SELDOM = ("start_s", "end_s", "messages", "template", "examples")
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
    """Give every row's `Job.digest`.

    Args:
        frame: A manifest's columns, messages resolved.

    Returns:
        A column `job_digest` of text; null where the row's messages are no JSON.
    """
    texts = frame.select(_TEXT.cast(pl.Binary)).to_series().to_list()
    digests: list[str | None] = [sha256(text).hexdigest()[:DIGEST_LENGTH] for text in texts]
    is_seldom = frame.select(pl.any_horizontal(pl.col(name).is_not_null() for name in _SELDOM)).to_series()
    for place, job in zip(is_seldom.arg_true(), jobs_of(frame.filter(is_seldom)), strict=True):
        digests[place] = _digest(job)
    return pl.Series("job_digest", digests, dtype=pl.String)


def jobs_of(frame: pl.DataFrame) -> list[Job]:
    """Make jobs of a manifest's rows."""
    rows = frame.select(*COLUMNS).iter_rows(named=True)
    return [Job(**row | {"choices": tuple(row["choices"] or ())}) for row in rows]


def _digest(job: Job) -> str | None:
    try:
        return job.digest
    except ValueError:
        return None


def columns_of(jobs: Sequence[Job]) -> pl.DataFrame:
    """Make rows of jobs, with `row` and `job_digest`."""
    columns = {name: [getattr(job, name) for job in jobs] for name in COLUMNS}
    digests = {"job_digest": [job.digest for job in jobs]}
    return pl.DataFrame(columns | digests, schema=COLUMNS | {"job_digest": pl.String}).with_row_index(ROW)
