"""The flow `evaluate`: compare candidates on a manifest with known answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from prefect import get_run_logger

from flows.compare.candidates import resolve_candidates
from flows.compare.live import QUESTIONS, answer_live
from flows.compare.tables import publish_evaluation
from flows.compare.tracking import open_experiment
from flows.run.flow_run import name_of_current
from flows.run.request import EvaluateRequest, QuestionOptions
from flows.run.result import completed_state
from flows.run.run_flow import run_flow
from flows.runs import classify
from infra.database.connect import connected
from infra.errors import ManifestError
from infra.settings import load_settings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.evaluation.compare import compare_candidates
from tasks.manifest.check import require_choices
from tasks.manifest.location import dataset_name
from tasks.manifest.media import ALL_URIS
from tasks.manifest.table import open_jobs
from tasks.results.evaluation.evaluations import read_candidate_results, save_evaluation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefect import State

    from flows.compare.candidates import Candidate
    from flows.compare.tracking import Experiment
    from infra.settings import Settings
    from tasks.evaluation.compare import CandidateResults
    from tasks.evaluation.scores import Evaluation

_COLUMNS = ("job_id", "job_digest", "video_uri", "start_s", "end_s", "answer", "task", "subtask", *QUESTIONS)


@run_flow(EvaluateRequest, name=lambda: name_of_current("evaluate"))
def evaluate(request: EvaluateRequest) -> State[str]:
    """Compare samplers, frame counts and models on a manifest with known answers.

    Each candidate is a run of its own, and jobs that it has answered before are not answered again.
    """
    manifest, dataset = request.manifest, request.dataset
    settings = load_settings()
    experiment = open_experiment(dataset or dataset_name(manifest)) if request.mlflow else None
    jobs = read_labelled_jobs(manifest, settings)
    candidates, against = resolve_candidates(
        request.samplers,
        request.models,
        settings,
        baseline=request.baseline,
        references=request.references,
        asking=QuestionOptions(prompts=request.prompts, chunks=request.chunks, max_tokens=request.max_tokens),
    )
    for number, candidate in enumerate(candidates, 1):
        get_run_logger().info("Candidate %s of %s: %s.", number, len(candidates), candidate.name)
        classify(manifest=manifest, dataset=dataset, overrides=candidate.overrides)
    others = [answer_live(jobs, settings, url=request.live)] if request.live else []
    evaluation = score_candidates(
        candidates,
        jobs,
        settings,
        others=others,
        baseline=against,
        manifest=manifest,
        dataset=dataset or dataset_name(manifest),
    )
    publish_evaluation(evaluation)
    if experiment:
        _log(experiment, evaluation)
    return completed_state(summarize(evaluation))


def _log(experiment: Experiment, evaluation: Evaluation) -> None:
    try:
        experiment.log(evaluation)
    except ConfigurationError as error:  # the evaluation is saved, and evaluating again asks no job again
        get_run_logger().warning("Not logged: %s Evaluate again to log it.", error.message)
    else:
        get_run_logger().info("Logged %s to %s", pluralize(len(evaluation.specs), "candidate"), experiment.uri)


def read_labelled_jobs(manifest: str, settings: Settings) -> pl.DataFrame:
    """Read the columns of a manifest that an evaluation needs."""
    with open_jobs(manifest, ObjectStore(settings.store, settings.web)) as table:
        # What a job shows is decoded once for all jobs that show it: several videos count as one of their own.
        parts = [part.with_columns(video_uri=ALL_URIS).select(_COLUMNS) for part in table.parts()]
    jobs = pl.concat(parts).drop_nulls("choices")
    require_choices(manifest, has_choices=not jobs.is_empty())
    if jobs["answer"].is_null().all():
        raise ManifestError(f"{manifest} has no known answers to evaluate against; fill in the column answer.")
    return jobs


def score_candidates(
    candidates: Sequence[Candidate],
    jobs: pl.DataFrame,
    settings: Settings,
    *,
    others: Sequence[CandidateResults] = (),
    baseline: str,
    manifest: str,
    dataset: str,
) -> Evaluation:
    """Read every candidate's labels, compare them and those of others, and save the evaluation."""
    with connected(settings.database) as database:
        results = [
            read_candidate_results(database, each.spec, name=each.name, dataset=dataset, jobs=jobs)
            for each in candidates
        ]
        results += others
        evaluation = compare_candidates(jobs, results, baseline=baseline, manifest_uri=manifest, dataset=dataset)
        save_evaluation(database, evaluation)
    return evaluation


def summarize(evaluation: Evaluation) -> str:
    """Summarize an evaluation in a sentence."""
    known = pluralize(evaluation.known, "known answer")
    accuracies = ", ".join(f"{spec.name} {spec.accuracy.value:.1%}" for spec in evaluation.specs if spec.accuracy)
    if not accuracies:
        return f"No candidate has a label to compare with {known}; check the failures."
    return f"Accuracy on {known}: {accuracies}; compared with {evaluation.baseline}."
