"""Inputs of an evaluation, and the table of evaluations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

import polars as pl
from sqlalchemy import func, insert, select

from infra.database.connect import database_errors
from tasks.database.scope import Scope
from tasks.database.tables import EVALUATION, RUN
from tasks.domain import RunCost
from tasks.evaluation.scores import Cost, Evaluation
from tasks.results.read import read_failures, read_results

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Engine

    from tasks.domain import RunSpec
    from tasks.evaluation.compare import CandidateResults

_VIEW = ["video_uri", "start_s", "end_s"]
_COSTS = ("frames_decoded", "bytes_fetched", "fetch_ms", "decode_ms", "embed_ms")


def read_candidate_results(
    engine: Engine, spec: RunSpec, *, name: str, dataset: str, jobs: pl.DataFrame
) -> CandidateResults:
    """Read the outcomes of a manifest's jobs under a candidate's spec, and their cost.

    `jobs` has the columns `job_id`, `job_digest`, `video_uri`, `start_s` and `end_s`. Results of an earlier version of
    a job are ignored.
    """
    # SciPy is slow to import, and `last_evaluation` does not need it.
    from tasks.evaluation.compare import CandidateResults  # noqa: PLC0415

    scope = Scope(dataset=dataset, spec_id=spec.spec_id)
    keys = jobs.select("job_id", "job_digest", *_VIEW)
    labels = read_results(engine, scope).join(keys, on=["job_id", "job_digest"], maintain_order="left")
    failures = read_failures(engine, scope).join(keys, on=["job_id", "job_digest"], maintain_order="left")
    return CandidateResults(
        name=name,
        spec_id=spec.spec_id,
        model=spec.model.name,
        sampling=spec.sampling.to_dict(),
        labels=labels.select("job_id", "label", "probabilities", "choice_mass"),
        failed=failures["job_id"].to_list(),
        cost=_cost_of(engine, labels),
    )


def save_evaluation(engine: Engine, evaluation: Evaluation) -> UUID:
    evaluation_id = uuid4()
    row = {
        "evaluation_id": evaluation_id,
        "dataset": evaluation.dataset,
        "manifest_uri": evaluation.manifest_uri,
        "body": json.loads(evaluation.to_json()),
        "created_at": func.now(),
    }
    with database_errors(), engine.begin() as connection:
        connection.execute(insert(EVALUATION).values(**row))
    return evaluation_id


def last_evaluation(engine: Engine, *, dataset: str) -> Evaluation | None:
    newest = EVALUATION.c.created_at.desc()
    query = select(EVALUATION.c.body).where(EVALUATION.c.dataset == dataset).order_by(newest).limit(1)
    with database_errors(), engine.connect() as connection:
        body = connection.execute(query).scalar_one_or_none()
    return None if body is None else Evaluation.from_json(json.dumps(body))


def _cost_of(engine: Engine, labels: pl.DataFrame) -> Cost:
    """Sum the cost of labels: of each video once, however many jobs share it, and of the runs that wrote them."""
    if labels.is_empty():
        return Cost()
    # Each sampler decodes a video once. Sorted, so that sums of the same rows are rounded the same way.
    passes = labels.group_by(*_VIEW, "sampler").agg(pl.col(*_COSTS).max()).sort(*_VIEW, "sampler")
    videos = passes.group_by(_VIEW, maintain_order=True).agg(pl.col("fetch_ms", "decode_ms", "embed_ms").sum())
    cached = videos.filter((pl.col("fetch_ms") == 0) & (pl.col("decode_ms") == 0))
    runs = _runs(engine, labels["run_id"].unique().to_list())
    wall_s = sum(run.loaded_ms for run in runs) / 1e3
    return Cost(
        wall_s=wall_s or None,
        jobs_per_s=sum(run.jobs for run in runs) / wall_s if wall_s else None,
        videos=len(videos),
        videos_cached=len(cached),
        frames_decoded=_sum(passes["frames_decoded"]),
        decode_s=float((videos["decode_ms"] + videos["embed_ms"]).sum()) / 1e3,
        bytes_read=_sum(passes["bytes_fetched"]),
        engine_s=float(labels["inference_ms"].sum()) / 1e3,
    )


def _sum(counts: pl.Series) -> int | None:
    return None if counts.null_count() else int(counts.sum())


def _runs(engine: Engine, run_ids: list[str]) -> list[RunCost]:
    query = select(RUN).where(RUN.c.run_id.in_(run_ids))
    with database_errors(), engine.connect() as connection:
        rows = connection.execute(query).mappings().all()
    return [cost for row in rows if (cost := RunCost.of_run(row))]
