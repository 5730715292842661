"""The chunks of the jobs that a report shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from tasks.database.tables import CHUNK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection, RowMapping

    from tasks.database.scope import Scope

_MAX_SHOWN = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChunk:
    """One chunk of a job in a report.

    Attributes:
        number: Position among the job's chunks, from 0.
        label: Its label; None if it failed.
        code: Code of its failure; None if it has a label.
        message: Why it failed.
        strip: Index in `ShownJobs.strips`; None if its frames are not included.
    """

    number: int
    start_s: float
    end_s: float | None
    label: str | None
    code: str | None
    message: str | None
    margin: float | None
    strip: int | None = None


def read_chunk_rows(
    connection: Connection, scope: Scope, rows: Mapping[str, RowMapping]
) -> dict[str, list[RowMapping]]:
    """Read the chunks of jobs that were cut, in order, by job id; of many jobs, those of the first."""
    wanted, chunks = [], 0
    for job_id, row in rows.items():
        chunks += row["chunks"] or 0
        if row["chunks"] and chunks <= _MAX_SHOWN:
            wanted.append(job_id)
    if not wanted:
        return {}
    query = (
        select(CHUNK).where(scope.matches(CHUNK), CHUNK.c.job_id.in_(wanted)).order_by(CHUNK.c.job_id, CHUNK.c.chunk)
    )
    found: dict[str, list[RowMapping]] = {}
    for chunk in connection.execute(query).mappings():
        found.setdefault(chunk["job_id"], []).append(chunk)
    return found


def show_chunk(row: RowMapping) -> ShownChunk:
    """Return what a report shows of a chunk besides its frames."""
    names = ("end_s", "label", "code", "message", "margin")
    return ShownChunk(number=row["chunk"], start_s=row["start_s"] or 0.0, **{name: row[name] for name in names})


def chunks_with_frames(job: RowMapping, chunks: Sequence[RowMapping], named: AbstractSet[int]) -> list[RowMapping]:
    """Choose the chunks whose frames are shown: those that are named, and the first one that tells of the outcome."""
    telling = [chunk for chunk in chunks if chunk["label"] == job.get("label")]
    return [chunk for chunk in chunks if chunk["chunk"] in named or chunk in (telling or chunks)[:1]]
