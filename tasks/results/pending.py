"""Which jobs still have to be asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sqlalchemy import select

from infra.database import database_errors
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
    """
    query = select(RESULT.c.job_id, RESULT.c.job_digest, RESULT.c.source_fingerprint)
    query = query.where(RESULT.c.dataset == dataset, RESULT.c.spec_id == spec_id)
    with database_errors(), engine.connect() as connection:
        labelled = {row.job_id: (row.job_digest, row.source_fingerprint) for row in connection.execute(query)}
    unchanged = [job for job in jobs if labelled.get(job.job_id, ("", ""))[0] == job.digest]
    uris = list(dict.fromkeys(job.video_uri for job in unchanged))
    with ThreadPoolExecutor(_LOOKUPS_AT_ONCE) as threads:
        fingerprints = dict(zip(uris, threads.map(fingerprint_of, uris), strict=True))
    done = {job.job_id for job in unchanged if labelled[job.job_id][1] == fingerprints[job.video_uri]}
    return [job for job in jobs if job.job_id not in done]
