"""Candidates of an evaluation as runs of MLflow, where its own variables say: MLFLOW_TRACKING_URI and others."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from infra.extras import require_mlflow
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import redact_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.evaluation.scores import CandidateScore, Difference, Evaluation, Proportion

_FORBIDDEN = re.compile(r"[^\w\-. /]")
_LONGEST_NAME = 200
_LONGEST_REASON = 300
_COSTS = ("jobs_per_s", "wall_s", "frames_decoded", "decode_s", "bytes_read", "engine_s")


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment of MLflow.

    Attributes:
        uri: Where it is, without credentials.
    """

    client: Any
    experiment_id: str
    uri: str

    def log(self, evaluation: Evaluation) -> None:
        """Log each candidate as a run; ConfigurationError if the server does not take it."""
        from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415 - an extra

        with _errors(self.uri):
            for spec in evaluation.specs:
                run = self.client.create_run(self.experiment_id, run_name=spec.name)
                at_ms = run.info.start_time
                self.client.log_batch(
                    run.info.run_id,
                    params=[Param(name, str(value)) for name, value in parameters_of(evaluation, spec).items()],
                    metrics=[Metric(name, value, at_ms, 0) for name, value in metrics_of(evaluation, spec).items()],
                    tags=[RunTag("reelabel.evaluated_at", evaluation.created_at)],
                )
                self.client.set_terminated(run.info.run_id)


def open_experiment(dataset: str) -> Experiment:
    """Find or create the experiment that MLFLOW_EXPERIMENT_ID or MLFLOW_EXPERIMENT_NAME names, else the dataset's.

    Raises:
        ConfigurationError: MLflow is not installed, or its server does not respond.
    """
    mlflow = require_mlflow()
    uri = redact_uri(mlflow.get_tracking_uri())
    with _errors(uri):
        client = mlflow.MlflowClient()
        if (experiment_id := os.environ.get("MLFLOW_EXPERIMENT_ID")) is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", dataset)
            found = client.get_experiment_by_name(name)
            experiment_id = found.experiment_id if found else client.create_experiment(name)
    return Experiment(client, experiment_id, uri)


@contextmanager
def _errors(uri: str) -> Iterator[None]:
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 - an extra

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:  # it leaves those of its databases as they are
        why = " ".join(str(error).split())[:_LONGEST_REASON]
        raise ConfigurationError(f"MLflow at {uri} cannot be used: {why}") from error


def parameters_of(evaluation: Evaluation, spec: CandidateScore) -> dict[str, Any]:
    """Return how a candidate was asked."""
    return {
        "dataset": evaluation.dataset,
        "manifest": redact_uri(evaluation.manifest_uri),
        "baseline": evaluation.baseline,
        "model": spec.model,
        "spec_id": spec.spec_id,
        **{f"sampling.{name}": value for name, value in spec.sampling.items()},
    }


def metrics_of(evaluation: Evaluation, spec: CandidateScore) -> dict[str, float]:
    """Return the figures of a candidate that are known, and its accuracy by task."""
    figures: dict[str, float | None] = {
        "jobs": spec.jobs,
        "labels": spec.labels,
        "failures": spec.failures,
        "low_mass": spec.low_mass,
        "calibration_error": spec.calibration_error,
        **_interval("accuracy", spec.accuracy),
        **_interval("difference", spec.difference),
        "p_holm": spec.difference.p_holm if spec.difference else None,
        **{f"cost/{name}": getattr(spec.cost, name) for name in _COSTS},
        **{_metric_name(group.title): group.accuracy.value for group in evaluation.tasks if group.spec == spec.name},
    }
    return {name: float(value) for name, value in figures.items() if value is not None}


def _interval(name: str, found: Proportion | Difference | None) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high} if found else {}


def _metric_name(task: str) -> str:
    return f"task_accuracy/{_FORBIDDEN.sub('_', task or 'no task')[:_LONGEST_NAME]}"
