"""The flow that compares ways of asking on a manifest whose answers are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from prefect import State, flow, get_run_logger

from flows.artifacts import publish_evaluation
from flows.candidates import lay_out
from flows.classify import classify
from flows.ending import completed
from flows.parameters import Dataset, Manifest, Models, Samplers, Way
from infra.database import connect
from infra.errors import ManifestError
from infra.objects import ObjectStore
from infra.settings import load_settings
from infra.wording import counted
from tasks.evaluation.compare import compare
from tasks.manifest.read import dataset_name
from tasks.manifest.table import open_jobs
from tasks.results.evaluations import read_answers, save_evaluation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.candidates import Candidate
    from infra.settings import Settings
    from tasks.evaluation.scores import Evaluation

_COLUMNS = ("job_id", "job_digest", "video_uri", "start_s", "end_s", "answer", "task", "subtask")


@flow(
    name="evaluate",
    description="Compare samplers, numbers of frames and models on a manifest whose answers are known.",
    flow_run_name="evaluate-{manifest}",
)
def evaluate(
    manifest: Manifest,
    samplers: Samplers = ["keyframes"],  # noqa: B006 - a form's default; never changed
    models: Models = [],  # noqa: B006
    dataset: Dataset = None,
    baseline: Way = None,
    *,
    only: bool = False,
) -> State[str]:
    """Answer a labelled manifest in several ways, and say how right each is, beside a baseline; gives a sentence.

    Each way is a run of its own: what it has answered before is not asked again.

    Args:
        manifest: Parquet file of jobs whose column answer is filled in, or a glob of such: a path, or
            s3://bucket/jobs/*.parquet.
        samplers: How frames are chosen, each as SAMPLER[:FRAMES][,OPTION=VALUE...], such as keyframes, uniform:32 or
            qwen3_vl,fps=4; faithful stands for the sampler that the model was trained with.
        models: Model folders or hub names, each asked by every sampler; empty takes the setting.
        dataset: Name under which job ids are unique; empty is the manifest's file name.
        baseline: The sampler that the others are compared with; empty is the faithful one.
        only: Compare these samplers alone, with the first of them; else the faithful one and uniform:16 stand beside.
    """
    settings = load_settings()
    jobs = read_known(manifest, settings)
    candidates, against = lay_out(samplers, models, settings, baseline=baseline, only=only)
    for number, candidate in enumerate(candidates, 1):
        get_run_logger().info("Way %s of %s: %s.", number, len(candidates), candidate.name)
        classify(
            manifest=manifest,
            dataset=dataset,
            num_frames=candidate.num_frames,
            sampling=candidate.sampling,
            model=candidate.model,
        )
    evaluation = score(
        candidates, jobs, settings, baseline=against, manifest=manifest, dataset=dataset or dataset_name(manifest)
    )
    publish_evaluation(evaluation)
    return completed(conclude(evaluation))


def read_known(manifest: str, settings: Settings) -> pl.DataFrame:
    """Read what an evaluation needs of a manifest's jobs.

    Raises:
        ManifestError: The manifest cannot be used, or knows no answer.
    """
    with open_jobs(manifest, ObjectStore(settings.store, settings.web)) as table:
        jobs = pl.concat([part.select(_COLUMNS) for part in table.parts()])
    if jobs["answer"].is_null().all():
        raise ManifestError(f"{manifest} knows no answer, so nothing can be evaluated; fill in the column answer.")
    return jobs


def score(
    candidates: Sequence[Candidate],
    jobs: pl.DataFrame,
    settings: Settings,
    *,
    baseline: str,
    manifest: str,
    dataset: str,
) -> Evaluation:
    """Read every way's labels, compare them, and keep the comparison.

    Raises:
        TransientError: Postgres did not answer.
    """
    database = connect(settings.database)
    try:
        results = [read_answers(database, each.spec, name=each.name, dataset=dataset, jobs=jobs) for each in candidates]
        evaluation = compare(jobs, results, baseline=baseline, manifest_uri=manifest, dataset=dataset)
        save_evaluation(database, evaluation)
    finally:
        database.dispose()
    return evaluation


def conclude(evaluation: Evaluation) -> str:
    """Say in a sentence what came out."""
    ways = [f"{spec.name} {spec.accuracy.value:.1%}" for spec in evaluation.specs if spec.accuracy]
    return f"Accuracy on {counted(evaluation.known, 'known answer')}: {', '.join(ways)}; against {evaluation.baseline}."
