"""Evaluations logged to MLflow, and errors of MLflow."""

import traceback
from dataclasses import replace

import pytest

from flows.compare.tracking import metrics_of, open_experiment
from infra.processes import free_port
from reelabel.errors import ConfigurationError
from tasks.evaluation.scores import CandidateScore, Estimate, Evaluation, GroupScore

EVEN = Estimate(value=0.5, low=0.2, high=0.8)
CANDIDATE = CandidateScore(
    name="keyframes:16",
    spec_id="0123456789abcdef",
    model="m",
    sampling={"sampler": "keyframes", "num_frames": 16},
    jobs=2,
    labels=2,
    failures=0,
    correct=1,
    accuracy=EVEN,
    calibration_error=None,
)


def evaluation(*tasks, others=(), **changes):
    """An evaluation of one candidate and others, whose tasks have accuracies of their own."""
    groups = [
        GroupScore(spec=CANDIDATE.name, task=task, subtask=None, jobs=2, correct=1, accuracy=replace(EVEN, value=at))
        for at, task in enumerate(tasks)
    ]
    return Evaluation(
        manifest_uri="/jobs.parquet",
        dataset="known",
        created_at="2026-11-28T00:00:00+00:00",
        jobs=2,
        known=2,
        baseline=CANDIDATE.name,
        specs=(replace(CANDIDATE, **changes), *others),
        tasks=tuple(groups),
        subtasks=(),
    )


@pytest.fixture
def client(mlflow_uri, monkeypatch):
    """MLflow in a database, where its variable says."""
    import mlflow  # noqa: PLC0415 - in the one worker process that runs these tests, not in all

    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    return mlflow.MlflowClient(mlflow_uri)


@pytest.mark.parametrize("end", ["", "/"])
def test_the_login_of_mlflow_is_in_no_error(monkeypatch, end):
    port = free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://u:hunter2@127.0.0.1:{port}{end}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    with pytest.raises(ConfigurationError, match=f"API request to http://127.0.0.1:{port}") as raised:
        open_experiment("known")

    assert "hunter2" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("variable", ["MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"])
def test_an_experiment_that_is_deleted_is_refused(client, monkeypatch, variable):
    known = client.create_experiment("known")
    client.delete_experiment(known)
    monkeypatch.setenv(variable, known if variable.endswith("ID") else "known")

    with pytest.raises(ConfigurationError, match=r"The experiment known of MLflow at .* is deleted; restore it"):
        open_experiment("d")


def test_an_experiment_that_is_unknown_is_refused(client, monkeypatch):  # noqa: ARG001
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "77")

    with pytest.raises(ConfigurationError, match="No Experiment with id=77"):
        open_experiment("known")


def test_a_run_that_cannot_be_logged_has_failed(client, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRUNCATE_LONG_VALUES", "false")
    experiment = open_experiment("known")

    with pytest.raises(ConfigurationError, match="cannot be used"):
        experiment.log(evaluation(model="m" * 10_000))  # longer than a parameter may be

    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"


def test_an_evaluation_that_is_logged_again_logs_what_is_not_logged(client, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRUNCATE_LONG_VALUES", "false")
    experiment = open_experiment("known")
    evaluated = evaluation(others=[replace(CANDIDATE, name="uniform:16", model="m" * 10_000)])
    with pytest.raises(ConfigurationError, match="cannot be used"):
        experiment.log(evaluated)
    monkeypatch.delenv("MLFLOW_TRUNCATE_LONG_VALUES")

    for time in ("T01", "T02"):
        open_experiment("known").log(replace(evaluated, created_at=f"2026-11-28{time}:00:00+00:00"))

    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"])
    assert [(run.info.run_name, run.info.status) for run in runs] == [
        ("keyframes:16", "FINISHED"),
        ("uniform:16", "FAILED"),
        ("uniform:16", "FINISHED"),
    ]


def test_a_candidate_with_other_figures_is_logged_again(client):
    experiment = open_experiment("known")

    experiment.log(evaluation())
    experiment.log(evaluation(correct=2, accuracy=replace(EVEN, value=1.0)))

    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.data.metrics["accuracy"] for run in runs) == [0.5, 1.0]


def test_more_tasks_than_a_request_takes_are_logged(client):
    experiment = open_experiment("known")

    experiment.log(evaluation(*(f"task {number}" for number in range(2_100))))

    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert sum(name.startswith("task_accuracy/") for name in run.data.metrics) == 2_100


def test_tasks_whose_names_mlflow_does_not_take_are_metrics_of_their_own():
    tasks = ["what?", "what!", "what_", "long" * 100, "long" * 101, None]

    figures = metrics_of(evaluated := evaluation(*tasks), evaluated.specs[0])

    found = {name: value for name, value in figures.items() if name.startswith("task_accuracy/")}
    assert [*found.values()] == [0, 1, 2, 3, 4, 5]
    assert {"task_accuracy/what_", "task_accuracy/no task"} <= {*found}
