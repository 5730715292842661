"""The jobs that a page shows, as the manifest has them now, and how their frames are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from infra.errors import ManifestError
from reelabel.errors import ObjectError
from reelabel.frames.cache_key import FrameIdentity
from reelabel.sampling.passes import sampling_shown
from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import RowMapping

    from reelabel.segment import Segment
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import Job, RunSpec


def jobs_of_rows(
    manifest_uri: str, objects: ObjectStore, rows: Mapping[str, RowMapping], *, questions: bool = True
) -> tuple[dict[str, Job], str]:
    """Read the jobs of rows by id, without those that the manifest has changed since; also say what prevents it."""
    if not rows:
        return {}, ""
    try:
        only = pl.Series("job_id", list(rows), dtype=pl.String)
        with open_jobs(manifest_uri, objects, only=only, keep_going=True, questions=questions) as table:
            jobs = [job for part in table.parts() for job in rows_to_jobs(part)]
    except (ManifestError, ObjectError) as error:
        return {}, f"{'Questions' if questions else 'Videos'} and frames are unavailable: {error.message}"
    return {job.job_id: job for job in jobs if job.digest == rows[job.job_id]["job_digest"]}, ""


def identity_of_frames(job: Job, spec: RunSpec, row: RowMapping, segment: Segment) -> FrameIdentity | None:
    """Return what the frames of a job's row, or of a chunk's, are asked for by; None if the source is unknown."""
    if row["source_fingerprint"] is None:
        return None
    sampler, chosen_ms = row.get("sampler") or spec.sampling.sampler, row.get("chosen_ms") or ""
    sampling = sampling_shown(spec.sampling, sampler=sampler, chosen_ms=chosen_ms)
    return FrameIdentity(
        source_uri=job.video_uri, fingerprint=row["source_fingerprint"], sampling=sampling, segment=segment
    )
