"""The jobs that took longest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from tasks.report.choose import SPENT_MS
from tasks.results.tables import RESULT

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Connection

    from tasks.report.key import Key

_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowJob:
    """One job; its video's milliseconds are shared with the other jobs of the video."""

    job_id: str
    spent_ms: float
    fetch_ms: float
    decode_ms: float
    cache_ms: float
    preprocess_ms: float
    inference_ms: float


def find_slowest(connection: Connection, key: Key, run_id: UUID) -> tuple[SlowJob, ...]:
    """List the jobs of one run that took longest, the slowest first."""
    query = (
        select(
            SPENT_MS.label("spent_ms"),
            (RESULT.c.cache_write_ms + RESULT.c.cache_read_ms).label("cache_ms"),
            *(RESULT.c[name] for name in ("job_id", "fetch_ms", "decode_ms", "preprocess_ms", "inference_ms")),
        )
        .where(key.of(RESULT), RESULT.c.run_id == run_id)
        .order_by(SPENT_MS.desc(), RESULT.c.job_id)
        .limit(_MOST)
    )
    return tuple(SlowJob(**row) for row in connection.execute(query).mappings())
