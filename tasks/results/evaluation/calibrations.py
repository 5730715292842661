"""Fitted temperatures, one per spec; the raw probabilities of results never change."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sqlalchemy import RowMapping, func, select
from sqlalchemy.dialects.postgresql import insert

from infra.database.connect import database_errors
from infra.errors import ManifestError
from reelabel.text import pluralize
from tasks.database.tables import CALIBRATION, RESULT
from tasks.database.temp_table import MANIFEST_JOBS, temp_job_table
from tasks.domain import cluster_by_videos
from tasks.evaluation.calibration import BINS, Calibration, KnownAnswers
from tasks.results.summary import IS_CURRENT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Engine

    from tasks.database.scope import Scope
    from tasks.domain import Job

_MIN_JOBS = 20


def known_answers(engine: Engine, scope: Scope, *, jobs: Sequence[Job]) -> KnownAnswers:
    """Read the labels of the jobs with a known answer.

    Raises:
        ManifestError: Too few jobs have both, or all of them are on one video.
    """
    known = {job.job_id: job for job in jobs if job.answer is not None}
    query = (
        select(RESULT.c.job_id, RESULT.c.probabilities)
        .join(MANIFEST_JOBS, IS_CURRENT)
        .where(scope.matches(RESULT), RESULT.c.copied_from.is_(None))  # a copy is no further answer
        .order_by(RESULT.c.job_id)
    )
    with temp_job_table(engine, list(known.values())) as connection:
        rows = connection.execute(query).all()
    labelled = [(known[row.job_id], row.probabilities) for row in rows]
    clusters = cluster_by_videos([job for job, _ in labelled])
    videos = len(set(clusters))
    if len(labelled) < _MIN_JOBS or videos == 1:
        raise ManifestError(
            f"Cannot fit a temperature: of {pluralize(len(jobs), 'job')} in the manifest, {len(known):,} have "
            f"a known answer, and {len(labelled):,} of these have a label, on {pluralize(videos, 'video')}; at least "
            f"{_MIN_JOBS} on two videos are needed. Fill in the column answer, and run `reelabel classify`.",
        )
    return KnownAnswers.of(
        [
            (probabilities, job.choices.index(job.answer), cluster)
            for (job, probabilities), cluster in zip(labelled, clusters, strict=True)
        ]
    )


def save_calibration(
    engine: Engine, calibration: Calibration, scope: Scope, *, run_id: UUID, manifest_uri: str
) -> None:
    """Save a spec's temperature with the run and data it was fitted on, replacing the previous one."""
    numbers = {name: value for name, value in asdict(calibration).items() if name in CALIBRATION.c}
    row = {"run_id": run_id, "dataset": scope.dataset, "manifest_uri": manifest_uri, "bins": BINS, **numbers}
    row["created_at"] = func.now()
    statement = insert(CALIBRATION).values(spec_id=scope.spec_id, **row)
    with database_errors(), engine.begin() as connection:
        connection.execute(statement.on_conflict_do_update(index_elements=["spec_id"], set_=row))


def read_calibration(engine: Engine, spec_id: str) -> RowMapping | None:
    with database_errors(), engine.connect() as connection:
        query = select(CALIBRATION).where(CALIBRATION.c.spec_id == spec_id)
        return connection.execute(query).mappings().one_or_none()
