"""Fitted margins below which jobs are escalated, one per spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from infra.database.connect import database_errors
from reelabel.digest import hash64
from reelabel.errors import ConfigurationError
from reelabel.sampling.options import FITTED
from reelabel.segment import Segment
from tasks.database.tables import RESULT, ROUTE, SPEC
from tasks.database.temp_table import MANIFEST_JOBS, temp_job_table
from tasks.domain import cluster_by_videos
from tasks.evaluation.route import PairedAnswers
from tasks.results.summary import IS_CURRENT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sqlalchemy import Engine, Row

    from tasks.domain import Job, RunSpec
    from tasks.evaluation.route import RouteFit

_TIMES = ("decode_ms", "preprocess_ms", "inference_ms")
_READ = ("job_id", "spec_id", "label", "margin", "sampler", "frames_decoded", *_TIMES)


def escalation_margin(engine: Engine, spec: RunSpec) -> float | None:
    """Return the margin below which a spec's jobs are escalated; None if it escalates none.

    Raises:
        ConfigurationError: The spec uses a fitted margin, but none was fitted.
    """
    escalate_below = spec.sampling.escalate_below
    if escalate_below != FITTED:
        return escalate_below
    with database_errors(), engine.connect() as connection:
        query = select(ROUTE.c.escalate_below).where(ROUTE.c.spec_id == spec.spec_id)
        below: float | None = connection.execute(query).scalar_one_or_none()
    if below is None:
        raise ConfigurationError(
            "No margin was fitted for this spec; fit one with `reelabel route fit MANIFEST` and the same options, or "
            "set escalate_below to a number, such as 0.5."
        )
    return below


def paired_answers(
    engine: Engine, *, dataset: str, first: RunSpec, dense: RunSpec, jobs: Sequence[Job]
) -> PairedAnswers:
    """Read the answers under both specs to the jobs with a known answer."""
    known = {job.job_id: job for job in jobs if job.answer is not None}
    query = (
        select(*(RESULT.c[name] for name in _READ))
        .join(MANIFEST_JOBS, IS_CURRENT)
        .where(RESULT.c.dataset == dataset, RESULT.c.spec_id.in_([first.spec_id, dense.spec_id]))
    )
    rows: dict[str, dict[str, Row[Any]]] = {first.spec_id: {}, dense.spec_id: {}}
    with temp_job_table(engine, list(known.values())) as connection:
        for row in connection.execute(query):
            rows[row.spec_id][row.job_id] = row
    firsts, seconds = rows[first.spec_id], rows[dense.spec_id]
    both = sorted(firsts.keys() & seconds.keys())
    return _columns([(known[job_id], firsts[job_id], seconds[job_id]) for job_id in both])


def save_route(
    engine: Engine, fit: RouteFit, *, specs: tuple[RunSpec, RunSpec, RunSpec], dataset: str, manifest_uri: str
) -> None:
    """Save a proven margin with the data it was fitted on, replacing the previous one.

    `specs` are the spec that escalates, and those of its first and dense pass.
    """
    escalated, first, dense = specs
    assert fit.proven is not None
    row = {
        "escalate_below": fit.proven.below,
        "dataset": dataset,
        "manifest_uri": manifest_uri,
        "first_spec_id": first.spec_id,
        "dense_spec_id": dense.spec_id,
        "jobs": fit.jobs,
        "target": fit.target,
        "loss_at_most": fit.proof.overall.at_most,
        "accuracy": fit.proven.accuracy,
        "first_accuracy": fit.first.accuracy,
        "dense_accuracy": fit.dense.accuracy,
        "asked_again": fit.proven.asked_again,
        "frames_decoded": fit.proven.frames_decoded,
        "first_frames": fit.first.frames_decoded,
        "dense_frames": fit.dense.frames_decoded,
        "created_at": func.now(),
    }
    with database_errors(), engine.begin() as connection:
        body = escalated.model_dump(mode="json")
        connection.execute(insert(SPEC).values(spec_id=escalated.spec_id, body=body).on_conflict_do_nothing())
        statement = insert(ROUTE).values(spec_id=escalated.spec_id, **row)
        connection.execute(statement.on_conflict_do_update(index_elements=["spec_id"], set_=row))


def _columns(rows: Sequence[tuple[Job, Row[Any], Row[Any]]]) -> PairedAnswers:
    firsts, seconds = [first for _, first, _ in rows], [second for _, _, second in rows]
    return PairedAnswers(
        # Hashed, since a data: URI can be of any length.
        videos=np.array([hash64(cluster) for cluster in cluster_by_videos([job for job, _, _ in rows])], np.uint64),
        tasks=np.array([job.task or "" for job, _, _ in rows], np.str_),
        margins=np.array([row.margin if row.sampler == "keyframes" else np.inf for row in firsts], np.float64),
        first_right=np.array([first.label == job.answer for job, first, _ in rows], np.bool_),
        second_right=np.array([second.label == job.answer for job, _, second in rows], np.bool_),
        first_views=np.array([_view(job, first) for job, first, _ in rows], np.uint64),
        second_views=np.array([_view(job, second) for job, _, second in rows], np.uint64),
        first_frames=np.array([row.frames_decoded or 0 for row in firsts], np.int64),
        second_frames=np.array([row.frames_decoded or 0 for row in seconds], np.int64),
        first_s=np.array([_seconds(row) for row in firsts], np.float64),
        second_s=np.array([_seconds(row) for row in seconds], np.float64),
    )


def _view(job: Job, row: Row[Any]) -> int:
    """Return a hash of what a job shows, its segment and the sampler: jobs with the same one share frames."""
    shown = "\n".join(medium.uri for medium in job.shown)
    return hash64(f"{shown}\n{Segment.of(job.start_s, job.end_s)!r}\n{row.sampler}")


def _seconds(row: Row[Any]) -> float:
    return float(sum(getattr(row, name) for name in _TIMES)) / 1e3
