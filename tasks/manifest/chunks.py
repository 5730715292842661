"""Checks of a manifest whose jobs are to be cut into chunks, and the columns that tell a shard to cut them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from infra.errors import ManifestError
from tasks.domain.chunk_rule import choice_of
from tasks.domain.chunks import MARK
from tasks.manifest.rejects import list_faults
from tasks.manifest.schema import ROW, row_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tasks.domain import RunSpec
    from tasks.manifest.schema import Fault
    from tasks.manifest.table import JobTable


def require_cuttable(jobs: JobTable, spec: RunSpec, *, manifest: str) -> None:
    """Make sure that jobs show one video, that ids of chunks are unique, and that jobs have the choice of a rule.

    Any jobs will do if the spec cuts none; the manifest's URI is for the message.

    Raises:
        ManifestError: Some rows are not suited; the message lists them.
    """
    if spec.chunk_s is None or spec.chunk_rule is None:
        return
    faults: dict[str, Fault] = {}
    for part in jobs.parts():
        for fault in _faults(part, choice_of(spec.chunk_rule)):
            faults[fault.rule] = faults[fault.rule] + fault if fault.rule in faults else fault
    if faults:
        raise ManifestError(f"{manifest} cannot be cut into chunks:", list_faults([*map(str, faults.values())]))


def _faults(part: pl.DataFrame, wanted: str | None) -> Iterator[Fault]:
    marked = part.filter(pl.col("job_id").str.contains(MARK, literal=True)).select(ROW, "job_id").rows()
    several = part.drop_nulls("media").select(ROW, "job_id").rows()
    if several:
        rule = "With chunk_s, a job must show one video and no image; leave out chunk_s."
        yield row_fault(rule, "job_id", several)
    if marked:
        yield row_fault(f"With chunk_s, a job_id must not contain {MARK}, which numbers chunks.", "job_id", marked)
    if wanted is None:
        return
    lacking = part.filter(~pl.col("choices").list.contains(wanted)).select(ROW, "job_id").rows()
    if lacking:
        yield row_fault(f"The chunk rule any:{wanted} needs {wanted!r} among the choices.", "job_id", lacking)


def with_chunks(parts: Iterable[pl.DataFrame], chunk_s: float, *, asks_again: bool) -> Iterator[pl.DataFrame]:
    """Add the columns by which jobs are cut, and by which chunks with an answer are asked about again."""
    for part in parts:
        yield part.with_columns(chunk_s=pl.lit(chunk_s), asks_again=pl.lit(asks_again))
