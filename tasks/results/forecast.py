"""How long asking would take, by what past runs took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Double, cast, func, select

from infra.database.connect import database_errors
from tasks.database.tables import RESULT, RUN
from tasks.domain import RunPhase

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_MAX_VIDEOS = 10_000
_SIZED = r"^(s3|file):\d+:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What past runs of a dataset by a spec took.

    Attributes:
        jobs: Jobs that those runs asked; 0 where there was none.
        jobs_per_s: Their rate, once the engine was loaded.
        start_s: What loading the engine took, on average.
        videos: Videos on whose sizes the next figure rests; 0 where none is known.
        video_bytes: Mean size of those videos.
    """

    jobs: int
    jobs_per_s: float
    start_s: float
    videos: int
    video_bytes: float

    def duration_s(self, jobs: int) -> float:
        """Expect the seconds that some jobs take, the engine's start included."""
        return self.start_s + jobs / self.jobs_per_s


def past_pace(engine: Engine, *, dataset: str, spec_id: str, host: str | None) -> Pace:
    """Look at the past runs of a dataset by a spec, on one host or, with None, on any.

    Raises:
        DatabaseUnavailableError: Postgres did not answer.
    """
    with database_errors(), engine.connect() as connection:
        jobs, seconds, start_ms = _runs(connection, dataset, spec_id, host)
        videos, video_bytes = _videos(connection, dataset, spec_id)
    return Pace(
        jobs=jobs,
        jobs_per_s=jobs / seconds if seconds else 0.0,
        start_s=start_ms / 1e3,
        videos=videos,
        video_bytes=video_bytes,
    )


def _runs(connection: Connection, dataset: str, spec_id: str, host: str | None) -> tuple[int, float, float]:
    """Sum jobs and seconds of past runs, and average their engine's start in milliseconds."""
    asked = RUN.c.jobs_labelled + RUN.c.jobs_failed
    start_ms = cast(RUN.c.wall_ms[RunPhase.LOAD.value].astext, Double)
    query = select(
        cast(func.coalesce(func.sum(asked), 0), BigInteger),
        func.coalesce(func.sum(asked / RUN.c.jobs_per_s), 0.0),
        func.coalesce(func.avg(start_ms), 0.0),
    ).where(RUN.c.dataset == dataset, RUN.c.spec_id == spec_id, RUN.c.jobs_per_s > 0)
    if host is not None:
        query = query.where(RUN.c.host == host)
    jobs, seconds, start = connection.execute(query).one()
    return int(jobs), float(seconds), float(start)


def _videos(connection: Connection, dataset: str, spec_id: str) -> tuple[int, float]:
    """Average the sizes, which fingerprints begin with, of some of the videos that have labels."""
    fingerprint = RESULT.c.source_fingerprint
    some = (
        select(fingerprint)
        .where(RESULT.c.dataset == dataset, RESULT.c.spec_id == spec_id, fingerprint.regexp_match(_SIZED))
        .limit(_MAX_VIDEOS)
        .subquery()
    )
    distinct = select(some.c.source_fingerprint).distinct().subquery()
    size = cast(func.split_part(distinct.c.source_fingerprint, ":", 2), Double)
    videos, mean = connection.execute(select(func.count(), func.coalesce(func.avg(size), 0.0))).one()
    return int(videos), float(mean)
