"""Candidates of an evaluation as runs of MLflow, where its own variables say: MLFLOW_TRACKING_URI and others."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sqlalchemy.exc import SQLAlchemyError

from infra.extras import require_mlflow
from reelabel.digest import json_digest
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import redact_uri
from reelabel.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.evaluation.scores import CandidateScore, Difference, Estimate, Evaluation

_FORBIDDEN = re.compile(r"[^\w\-. /]")
_LONGEST_NAME = 200
_DIGEST = "reelabel.digest"
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
        """Log each candidate as a run, unless a finished run has the same figures; it is FAILED if not all is logged.

        Raises:
            ConfigurationError: The server does not take it.
        """
        with _errors():
            for spec in evaluation.specs:
                self._log(evaluation, spec)

    def _log(self, evaluation: Evaluation, spec: CandidateScore) -> None:
        from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415 - an extra

        parameters, metrics = parameters_of(evaluation, spec), metrics_of(evaluation, spec)
        digest = json_digest([spec.name, parameters, metrics])
        if self._is_logged(digest):
            return
        run, status = self.client.create_run(self.experiment_id, run_name=spec.name), "FAILED"
        try:
            self.client.log_batch(  # which splits what exceeds the limits of a request
                run.info.run_id,
                params=[Param(name, str(value)) for name, value in parameters.items()],
                metrics=[Metric(name, value, run.info.start_time, 0) for name, value in metrics.items()],
                tags=[RunTag("reelabel.evaluated_at", evaluation.created_at), RunTag(_DIGEST, digest)],
            )
            status = "FINISHED"
        finally:
            self.client.set_terminated(run.info.run_id, status)

    def _is_logged(self, digest: str) -> bool:
        same = f"tags.`{_DIGEST}` = '{digest}' and attributes.status = 'FINISHED'"
        return bool(self.client.search_runs([self.experiment_id], same, max_results=1))


def open_experiment(dataset: str) -> Experiment:
    """Find or create the experiment that MLFLOW_EXPERIMENT_ID or MLFLOW_EXPERIMENT_NAME names, else the dataset's.

    Raises:
        ConfigurationError: MLflow is not installed, its server does not respond, or the experiment is deleted.
    """
    mlflow = require_mlflow()
    uri = redact_uri(mlflow.get_tracking_uri())
    with _errors():
        client = mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", dataset)
        if (experiment_id := os.environ.get("MLFLOW_EXPERIMENT_ID")) is not None:
            found = client.get_experiment(experiment_id)
        elif (found := client.get_experiment_by_name(name)) is None:
            found = client.get_experiment(client.create_experiment(name))
    if found.lifecycle_stage == "deleted":
        raise ConfigurationError(
            f"The experiment {found.name} of MLflow at {uri} is deleted; restore it or name another."
        )
    return Experiment(client, found.experiment_id, uri)


@contextmanager
def _errors() -> Iterator[None]:
    from mlflow import get_tracking_uri  # noqa: PLC0415 - an extra
    from mlflow.exceptions import MlflowException  # noqa: PLC0415

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:  # it leaves those of its databases as they are
        uri = get_tracking_uri()
        why = reason_of(_redact(str(error), uri))
        raise ConfigurationError(f"MLflow at {redact_uri(uri)} cannot be used: {why}") from None  # it has the password


def _redact(text: str, uri: str) -> str:
    """Return a text without the user name, the password and the query of a URI that it may contain."""
    login, at, _ = urlsplit(uri).netloc.rpartition("@")
    text = text.replace(uri, redact_uri(uri))
    return text.replace(login + at, "") if at else text


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


def _interval(name: str, found: Estimate | Difference | None) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high} if found else {}


def _metric_name(task: str) -> str:
    title = task or "no task"
    name = _FORBIDDEN.sub("_", title)[:_LONGEST_NAME]
    # Tasks whose names differ only in what MLflow does not take are metrics of their own.
    return f"task_accuracy/{name if name == title else f'{name}_{blake2b(title.encode(), digest_size=4).hexdigest()}'}"
