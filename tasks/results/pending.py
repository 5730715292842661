"""Which jobs still have to be asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from infra.errors import VideoUnavailableError
from tasks.domain import Stage
from tasks.results.stage import ASKED, staged_jobs
from tasks.results.tables import FAILURE, RESULT, RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Engine

    from tasks.domain import Job

_LOOKUPS_AT_ONCE = 16
_PASSING = (VideoUnavailableError.code,)


def pending_jobs(
    engine: Engine,
    *,
    dataset: str,
    spec_id: str,
    jobs: Sequence[Job],
    fingerprint_of: Callable[[str], str | None],
    retry_failures: bool = False,
) -> list[Job]:
    """Select the jobs that have not ended.

    A label is valid while the job's digest and its video's fingerprint are those it was given for;
    it outlives its video. So does a failure end its job, unless a frame file was at fault, for making
    it anew may cure that, or a web server.

    Args:
        engine: The database.
        dataset: Where the jobs' ids are unique.
        spec_id: The way of asking.
        jobs: The manifest's.
        fingerprint_of: Looks at a video; None where it is gone or refused. Called once per video, in
            threads, and only for videos of jobs that have a row.
        retry_failures: Count failed jobs among the pending ones.

    Returns:
        The jobs to ask, in the order of `jobs`.
    """
    labelled, failed = _ended(engine, dataset=dataset, spec_id=spec_id, jobs=jobs)
    if retry_failures:
        failed = {}
    uris = list(dict.fromkeys(job.video_uri for job in jobs if job.job_id in labelled or job.job_id in failed))
    with ThreadPoolExecutor(_LOOKUPS_AT_ONCE) as threads:
        now = dict(zip(uris, threads.map(fingerprint_of, uris), strict=True))

    def has_ended(job: Job) -> bool:
        if job.job_id in labelled:
            return now[job.video_uri] in {labelled[job.job_id], None}
        return job.job_id in failed and now[job.video_uri] == failed[job.job_id]

    return [job for job in jobs if not has_ended(job)]


def count_foreign(engine: Engine, *, dataset: str, manifest_uri: str, jobs: Sequence[Job]) -> int:
    """Count jobs whose id another manifest has used in this dataset for another question."""
    other = (RESULT.c.job_id == ASKED.c.job_id) & (RESULT.c.job_digest != ASKED.c.job_digest)
    query = (
        select(func.count(RESULT.c.job_id.distinct()))
        .join(ASKED, other)
        .join(RUN, RUN.c.run_id == RESULT.c.run_id)
        .where(RESULT.c.dataset == dataset, RUN.c.manifest_uri != manifest_uri)
    )
    with staged_jobs(engine, jobs) as connection:
        return connection.execute(query).scalar_one()


def _ended(
    engine: Engine, *, dataset: str, spec_id: str, jobs: Sequence[Job]
) -> tuple[dict[str, str], dict[str, str | None]]:
    """Map jobs with a label, and jobs with a failure, for their digest to the video's fingerprint then."""
    ended: list[dict[str, str]] = []
    with staged_jobs(engine, jobs) as connection:
        for table in (RESULT, FAILURE):
            same_job = (table.c.job_id == ASKED.c.job_id) & (table.c.job_digest == ASKED.c.job_digest)
            query = select(table.c.job_id, table.c.source_fingerprint).join(ASKED, same_job)
            query = query.where(table.c.dataset == dataset, table.c.spec_id == spec_id)
            if table is FAILURE:
                query = query.where(FAILURE.c.stage != Stage.CACHE.value, FAILURE.c.code.not_in(_PASSING))
            ended.append({row.job_id: row.source_fingerprint for row in connection.execute(query)})
    return ended[0], dict(ended[1])
