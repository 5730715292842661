"""Which jobs still have to be asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sqlalchemy import select

from tasks.results.stage import ASKED, staged_jobs
from tasks.results.tables import RESULT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Engine

    from tasks.domain import Job

_LOOKUPS_AT_ONCE = 16


def pending_jobs(
    engine: Engine,
    *,
    dataset: str,
    spec_id: str,
    jobs: Sequence[Job],
    fingerprint_of: Callable[[str], str | None],
) -> list[Job]:
    """Select the jobs without a valid label.

    A label is valid while the job's digest and its video's fingerprint are those it was given for.

    Args:
        engine: The database.
        dataset: Where the jobs' ids are unique.
        spec_id: The way of asking.
        jobs: The manifest's.
        fingerprint_of: Looks at a video; None where it is gone. Called once per video, in threads,
            and only for videos with labels to confirm.

    Returns:
        The jobs to ask, in the order of `jobs`.
    """
    labelled = _labelled(engine, dataset=dataset, spec_id=spec_id, jobs=jobs)
    uris = list(dict.fromkeys(job.video_uri for job in jobs if job.job_id in labelled))
    with ThreadPoolExecutor(_LOOKUPS_AT_ONCE) as threads:
        fingerprints = dict(zip(uris, threads.map(fingerprint_of, uris), strict=True))
    return [job for job in jobs if job.job_id not in labelled or labelled[job.job_id] != fingerprints[job.video_uri]]


def _labelled(engine: Engine, *, dataset: str, spec_id: str, jobs: Sequence[Job]) -> dict[str, str]:
    """Map each job that has a label for its digest to the fingerprint that the label was given for."""
    same_job = (RESULT.c.job_id == ASKED.c.job_id) & (RESULT.c.job_digest == ASKED.c.job_digest)
    query = select(RESULT.c.job_id, RESULT.c.source_fingerprint).join(ASKED, same_job)
    query = query.where(RESULT.c.dataset == dataset, RESULT.c.spec_id == spec_id)
    with staged_jobs(engine, jobs) as connection:
        return {row.job_id: row.source_fingerprint for row in connection.execute(query)}
