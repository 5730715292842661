"""Checks of a manifest whose jobs are to be cut into chunks, and the columns that tell a shard to cut them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from infra.errors import ManifestError
from tasks.domain.chunks import MARK, choice_of
from tasks.manifest.rejects import VIOLATIONS, find_violations, list_violations, shorten_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tasks.domain import RunSpec
    from tasks.manifest.table import JobTable


def require_cuttable(jobs: JobTable, spec: RunSpec, *, manifest: str) -> None:
    """Make sure that jobs show one video, that ids of chunks are unique, and that jobs have the choice of a rule.

    Any jobs will do if the spec cuts none; the manifest's URI is for the message.

    Raises:
        ManifestError: Some rows are not suited; the message lists them.
    """
    if spec.chunk_s is None or spec.chunk_rule is None:
        return
    is_marked, is_lacking = pl.col("job_id").str.contains(MARK, literal=True), pl.lit(value=False)
    if (wanted := choice_of(spec.chunk_rule)) is not None:
        is_lacking = ~pl.col("choices").list.contains(wanted)
    several = "With chunk_s, a job must show one video and no image; leave out chunk_s."
    rules = [
        (several, "job_id", pl.col("media").is_not_null()),
        (f"With chunk_s, a job_id must not contain {MARK}, which numbers chunks.", "job_id", is_marked),
        (f"The chunk rule any:{wanted} needs {wanted!r} among the choices.", "job_id", is_lacking),
    ]
    found = pl.concat([pl.DataFrame(schema=VIOLATIONS), *(find_violations(part, rules) for part in jobs.parts())])
    if len(found):
        raise ManifestError(f"{manifest} cannot be cut into chunks:", shorten_list(list_violations(found)))


def with_chunks(parts: Iterable[pl.DataFrame], chunk_s: float, *, asks_again: bool) -> Iterator[pl.DataFrame]:
    """Add the columns by which jobs are cut, and by which chunks with an answer are asked about again."""
    for part in parts:
        yield part.with_columns(chunk_s=pl.lit(chunk_s), asks_again=pl.lit(asks_again))
