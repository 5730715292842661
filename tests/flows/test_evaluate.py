import json
import re
import sys
from pathlib import Path

import polars as pl
import pytest
from sqlalchemy import func, select

from flows.evaluate import summarize
from infra.database.connect import connected
from infra.processes import free_port
from reelabel.sources.object_info import redact_uri
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import RESULT, RUN
from tasks.demo.clips import make_demo
from tasks.evaluation.compare import compare_candidates
from tasks.evaluation.scores import Evaluation
from tasks.results.evaluation.evaluations import last_evaluation
from tests.command_line import reelabel
from tests.evaluation.test_compare import jobs, results

pytestmark = pytest.mark.xdist_group("test_evaluate")
DOCUMENTED = Path(__file__).parents[2] / "docs" / "accuracy.md"


@pytest.fixture(scope="module")
def environment(served):
    return served | {"COLUMNS": "220"}


@pytest.fixture(scope="module")
def known_manifest(tmp_path_factory):
    """Twelve clips; one job knows no answer, one has no video, and one is about a part of its video."""
    folder = tmp_path_factory.mktemp("known")
    jobs = make_demo(folder, seed=5, clips=12)
    jobs = jobs.with_columns(
        answer=pl.when(pl.col("job_id") == jobs["job_id"][3]).then(None).otherwise("answer"),
        video_uri=pl.when(pl.col("job_id") == jobs["job_id"][6]).then(pl.lit("/gone.mp4")).otherwise("video_uri"),
        start_s=pl.when(pl.col("job_id") == jobs["job_id"][9]).then(0.5),
    )
    jobs.write_parquet(folder / "known.parquet")
    return str(folder / "known.parquet")


@pytest.fixture(scope="module")
def evaluated(environment, known_manifest, tmp_path_factory):
    """What the command prints, and the evaluation that it writes."""
    path = tmp_path_factory.mktemp("out") / "evaluation.json"
    run = reelabel(environment, "evaluate", known_manifest, "--dataset", "known", "--json", str(path))
    assert path.exists(), run.stderr + run.stdout
    return run, Evaluation.from_json(path.read_text())


def test_specs_are_compared_on_known_answers(evaluated, known_manifest, own_services):
    run, evaluation = evaluated

    keyframes, faithful = evaluation.specs
    assert (evaluation.jobs, evaluation.known, evaluation.baseline) == (36, 35, "uniform:16")
    assert [keyframes.name, faithful.name] == ["keyframes:16", "uniform:16"]
    assert (faithful.labels, faithful.failures) == (34, 1)
    for spec in evaluation.specs:
        assert spec.correct == correct_labels(own_services, spec.spec_id, known_manifest)
        assert spec.accuracy.value == spec.correct / spec.labels
    assert keyframes.difference.jobs == 34
    assert {group.task for group in evaluation.tasks} == {"colour", "direction", "shape"}
    assert run.returncode == 1  # finished, with a failure


def correct_labels(settings, spec_id, known_manifest):
    """How many labels of a spec equal the manifest's answers."""
    answers = dict(pl.read_parquet(known_manifest).select("job_id", "answer").iter_rows())
    of_spec = select(RESULT.c.job_id, RESULT.c.label).where(RESULT.c.dataset == "known", RESULT.c.spec_id == spec_id)
    with connected(settings.database) as engine, engine.connect() as connection:
        return sum(answers[row.job_id] == row.label for row in connection.execute(of_spec))


def test_every_candidate_reports_its_cost(evaluated):
    _, evaluation = evaluated

    for spec in evaluation.specs:
        assert spec.cost.videos == 13  # of one, a part stands by itself
        assert spec.cost.videos_cached == 0
        assert spec.cost.bytes_read > spec.cost.frames_decoded > 0
        assert spec.cost.jobs_per_s * spec.cost.wall_s == pytest.approx(36)
        assert min(spec.cost.decode_s, spec.cost.engine_s, spec.cost.frames_decoded) > 0


def test_a_table_names_the_best_and_the_worst(evaluated):
    run, _ = evaluated

    assert "known: 35 known answers, compared with uniform:16" in run.stdout
    assert "keyframes:16: worst on " in run.stdout
    assert run.stdout.count("direction") >= 1


def test_an_evaluation_is_saved_and_answered_jobs_are_not_asked_again(
    evaluated, environment, known_manifest, own_services
):
    _, evaluation = evaluated
    with connected(own_services.database) as engine:
        assert last_evaluation(engine, dataset="known") == evaluation
        assert last_evaluation(engine, dataset="unknown") is None
        again = reelabel(environment, "evaluate", known_manifest, "--dataset", "known", "--json", "-")
        with engine.connect() as connection:
            labelled = select(func.max(RUN.c.jobs_labelled)).where(RUN.c.dataset == "known", RUN.c.jobs_skipped > 0)
            assert connection.execute(labelled).scalar_one() == 0

    repeated = Evaluation.from_json(again.stdout)
    figures, before = (
        {(spec["name"], name): value for spec in json.loads(each.to_json())["specs"] for name, value in spec.items()}
        for each in (repeated, evaluation)
    )
    assert {name: (value, before[name]) for name, value in figures.items() if value != before[name]} == {}
    assert json.loads(repeated.to_json()) | {"created_at": ""} == json.loads(evaluation.to_json()) | {"created_at": ""}


@pytest.mark.system
def test_a_glob_in_the_current_folder_is_evaluated_in_the_dataset_of_the_folder(
    environment, known_manifest, monkeypatch
):
    folder = Path(known_manifest).parent
    monkeypatch.chdir(folder)

    samplers = ("--no-references", "--sampler=uniform:1", "--sampler=uniform:2")
    run = reelabel(environment, "evaluate", "?????.parquet", *samplers)

    assert f"{folder.name}: 35 known answers, compared with uniform:1" in run.stdout, run.stderr


def test_a_manifest_without_answers_is_refused(environment, known_manifest, tmp_path, own_services):
    objects = ObjectStore(own_services.store)
    pl.read_parquet(objects.read(known_manifest)).with_columns(answer=pl.lit(None, dtype=pl.String)).write_parquet(
        tmp_path / "unknown.parquet"
    )

    run = reelabel(environment, "evaluate", str(tmp_path / "unknown.parquet"))

    assert run.returncode == 2
    assert "has no known answers to evaluate against" in run.stderr


def logged(uri, experiment):
    """The runs of an experiment, by name; none if there is none."""
    import mlflow  # noqa: PLC0415 - in the one worker process that runs these tests, not in all

    client = mlflow.MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    return {run.info.run_name: run for run in client.search_runs([found.experiment_id])} if found else {}


@pytest.mark.system
def test_candidates_become_runs_of_mlflow_with_its_option(
    evaluated, environment, known_manifest, mlflow_uri, monkeypatch, capsys
):
    _, evaluation = evaluated
    evaluate = ("evaluate", known_manifest, "--dataset", "known")
    without_option = reelabel(environment | {"MLFLOW_TRACKING_URI": mlflow_uri}, *evaluate)
    before = logged(mlflow_uri, "known")

    with_option = reelabel(environment | {"MLFLOW_TRACKING_URI": mlflow_uri}, *evaluate, "--mlflow")

    assert (without_option.returncode, with_option.returncode) == (1, 1)  # finished, with a failure
    assert before == {}
    runs = logged(mlflow_uri, "known")
    assert {*runs} == {"keyframes:16", "uniform:16"}
    for spec in evaluation.specs:
        parameters, metrics = runs[spec.name].data.params, runs[spec.name].data.metrics
        assert runs[spec.name].info.status == "FINISHED"
        assert (parameters["sampling.sampler"], parameters["spec_id"]) == (spec.sampling["sampler"], spec.spec_id)
        assert parameters["baseline"] == "uniform:16"
        assert (metrics["accuracy"], metrics["labels"], metrics["failures"]) == (spec.accuracy.value, 34, 1)
        assert metrics["accuracy_low"] == spec.accuracy.low
        assert metrics["cost/frames_decoded"] == spec.cost.frames_decoded
        by_task = {group.task: group.accuracy.value for group in evaluation.tasks if group.spec == spec.name}
        assert {name: metrics[f"task_accuracy/{name}"] for name in by_task} == by_task
    assert runs["keyframes:16"].data.metrics["difference"] == evaluation.specs[0].difference.value
    assert "difference" not in runs["uniform:16"].data.metrics
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    [code] = re.findall(r"```python\n(import mlflow\n.*?)```", DOCUMENTED.read_text(), flags=re.DOTALL)
    exec(compile(code, DOCUMENTED.name, "exec"), {})
    assert len(re.findall(r"^(?:keyframes|uniform):16 0\.\d+ \d+", capsys.readouterr().out, flags=re.MULTILINE)) == 2


def test_the_experiment_of_mlflows_variable_is_used(evaluated, environment, known_manifest, mlflow_uri):  # noqa: ARG001
    named = {"MLFLOW_TRACKING_URI": mlflow_uri, "MLFLOW_EXPERIMENT_NAME": "samplers"}

    reelabel(environment | named, "evaluate", known_manifest, "--dataset", "known", "--mlflow")

    assert len(logged(mlflow_uri, "samplers")) == 2
    assert logged(mlflow_uri, "known") == {}


@pytest.mark.parametrize("scheme", ["sqlite", "http"])
def test_an_mlflow_that_cannot_be_used_is_named_before_anything_is_asked(environment, known_manifest, tmp_path, scheme):
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    uri = f"sqlite:///{tmp_path}/mlflow.db" if scheme == "sqlite" else f"http://127.0.0.1:{free_port()}"
    variables = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}

    refused = reelabel(environment | variables, "evaluate", known_manifest, "--dataset", "unasked", "--mlflow")

    assert refused.returncode == 2
    assert f"MLflow at {redact_uri(uri)} cannot be used" in " ".join(refused.stderr.split())
    listed = reelabel(environment, "status").stdout
    assert "unasked" not in listed


def test_mlflow_that_is_not_installed_is_named_with_its_command(environment, known_manifest, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)

    refused = reelabel(environment, "evaluate", known_manifest, "--mlflow")

    assert refused.returncode == 2
    assert re.search(r"pip install .*\[mlflow\]", " ".join(refused.stderr.split()))


def test_an_evaluation_without_a_label_says_so():
    failed = compare_candidates(jobs(), [results("a", {}), results("b", {}), results("c", {"e": "no"})], baseline="a")
    found = compare_candidates(jobs(), [results("a", {}), results("b", {"a": "yes"})], baseline="a")

    assert summarize(failed) == "No candidate has a label to compare with 4 known answers; check the failures."
    assert summarize(found) == "Accuracy on 4 known answers: b 100.0%; compared with a."
