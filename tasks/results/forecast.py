"""Forecast of a run's duration from past runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Double, cast, func, select

from infra.database.connect import database_errors
from tasks.database.tables import RESULT, RUN
from tasks.domain import RunPhase

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from tasks.database.scope import Scope

_MAX_VIDEOS = 10_000
_HAS_SIZE = r"^(s3|file):\d+:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Speed of past runs of a dataset under a spec.

    Attributes:
        jobs: Number of jobs that they answered; 0 without any run.
        jobs_per_s: Mean rate, once the engine was loaded.
        start_s: Mean seconds to load the engine.
        videos: Number of videos whose size is known.
        video_bytes: Mean size of these videos.
    """

    jobs: int
    jobs_per_s: float
    start_s: float
    videos: int
    video_bytes: float

    def duration_s(self, jobs: int) -> float:
        """Estimate the seconds that a number of jobs takes, including the start of the engine."""
        return self.start_s + jobs / self.jobs_per_s


def past_pace(engine: Engine, scope: Scope, *, host: str | None) -> Pace:
    """Measure the past runs of a dataset under a spec, on one host or, with None, on any."""
    with database_errors(), engine.connect() as connection:
        jobs, seconds, start_ms = _runs(connection, scope, host)
        videos, video_bytes = _videos(connection, scope)
    return Pace(
        jobs=jobs,
        jobs_per_s=jobs / seconds if seconds else 0.0,
        start_s=start_ms / 1e3,
        videos=videos,
        video_bytes=video_bytes,
    )


def _runs(connection: Connection, scope: Scope, host: str | None) -> tuple[int, float, float]:
    """Return the total jobs and seconds of past runs, and the mean start of their engines in milliseconds."""
    jobs_ended = RUN.c.jobs_labelled + RUN.c.jobs_failed
    start_ms = cast(RUN.c.wall_ms[RunPhase.LOAD.value].astext, Double)
    query = select(
        cast(func.coalesce(func.sum(jobs_ended), 0), BigInteger),
        func.coalesce(func.sum(jobs_ended / RUN.c.jobs_per_s), 0.0),
        func.coalesce(func.avg(start_ms), 0.0),
    ).where(scope.matches(RUN), RUN.c.jobs_per_s > 0)
    if host is not None:
        query = query.where(RUN.c.host == host)
    jobs, seconds, start = connection.execute(query).one()
    return int(jobs), float(seconds), float(start)


def _videos(connection: Connection, scope: Scope) -> tuple[int, float]:
    """Return the number and mean size of some labelled videos, from their fingerprints, which begin with the size."""
    fingerprint = RESULT.c.source_fingerprint
    some = (
        select(fingerprint)
        .where(scope.matches(RESULT), fingerprint.regexp_match(_HAS_SIZE))
        .limit(_MAX_VIDEOS)
        .subquery()
    )
    distinct = select(some.c.source_fingerprint).distinct().subquery()
    size = cast(func.split_part(distinct.c.source_fingerprint, ":", 2), Double)
    videos, mean = connection.execute(select(func.count(), func.coalesce(func.avg(size), 0.0))).one()
    return int(videos), float(mean)
