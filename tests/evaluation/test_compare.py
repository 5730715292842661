import polars as pl
import pytest

from reelabel.sampling.options import Sampling
from tasks.evaluation.compare import CandidateResults, compare_candidates
from tasks.evaluation.scores import Cost, Evaluation

TRUTHS = {"a": "yes", "b": "no", "c": "yes", "d": "no", "e": None}
TASKS = {"a": ("scene", "colour"), "b": ("scene", "colour"), "c": ("motion", "order"), "d": ("motion", None)}


def jobs(tasks=TASKS):
    rows = [
        {
            "job_id": job,
            "answer": answer,
            "task": tasks.get(job, (None, None))[0],
            "subtask": tasks.get(job, (0, None))[1],
        }
        for job, answer in TRUTHS.items()
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(("job_id", "answer", "task", "subtask"), pl.String))


def results(name, labels, *, failed=(), cost=None):
    rows = [
        {"job_id": job, "label": label, "probabilities": [0.75, 0.25], "choice_mass": 0.01 if label == "no" else 0.9}
        for job, label in labels.items()
    ]
    columns = {"job_id": pl.String, "label": pl.String, "probabilities": pl.List(pl.Float64), "choice_mass": pl.Float64}
    return CandidateResults(
        name=name,
        spec_id=f"id of {name}",
        model="tiny",
        sampling=Sampling().to_dict(),
        labels=pl.DataFrame(rows, schema=columns),
        failed=failed,
        cost=cost or Cost(),
    )


@pytest.fixture
def evaluation():
    faithful = results("faithful", {"a": "yes", "b": "no", "c": "yes", "d": "no", "e": "no"})
    keyframes = results("keyframes", {"a": "yes", "b": "no", "c": "no"}, failed=["d"], cost=Cost(wall_s=2.0, videos=3))
    return compare_candidates(
        jobs(), [keyframes, faithful], baseline="faithful", manifest_uri="jobs.parquet", dataset="jobs"
    )


def test_accuracy_is_the_share_of_correct_labels_among_those_with_known_answers(evaluation):
    keyframes, faithful = evaluation.specs

    assert (evaluation.jobs, evaluation.known) == (5, 4)
    assert (faithful.jobs, faithful.labels, faithful.correct, faithful.accuracy.value) == (4, 4, 4, 1.0)
    assert (keyframes.labels, keyframes.failures, keyframes.correct) == (3, 1, 2)
    assert keyframes.accuracy.value == pytest.approx(2 / 3)
    assert keyframes.calibration_error == pytest.approx(0.75 - 2 / 3)
    assert (faithful.low_mass, keyframes.low_mass) == (2, 2)


def test_a_difference_covers_the_jobs_that_both_specs_labelled(evaluation):
    keyframes, faithful = evaluation.specs

    assert faithful.difference is None
    assert (keyframes.difference.jobs, keyframes.difference.gained, keyframes.difference.lost) == (3, 0, 1)
    assert keyframes.difference.value == pytest.approx(-1 / 3)


def test_scores_are_given_by_task_and_subtask(evaluation):
    assert [(group.title, group.spec, group.correct, group.jobs) for group in evaluation.tasks] == [
        ("motion", "keyframes", 0, 1),
        ("motion", "faithful", 2, 2),
        ("scene", "keyframes", 2, 2),
        ("scene", "faithful", 2, 2),
    ]
    assert [group.title for group in evaluation.subtasks if group.spec == "faithful"] == [
        "motion",
        "motion / order",
        "scene / colour",
    ]
    assert [group.title for group in evaluation.by_difference("keyframes")] == ["motion / order", "scene / colour"]


def test_p_values_of_one_spec_are_adjusted_for_multiple_tests():
    labels = {f"j{number}": "yes" for number in range(40)}
    wrong = {job: "no" if number < 20 else label for number, (job, label) in enumerate(labels.items())}
    known = pl.DataFrame(
        [
            {"job_id": job, "answer": "yes", "task": "t", "subtask": "first" if number < 20 else "second"}
            for number, job in enumerate(labels)
        ]
    )

    got = compare_candidates(known, [results("base", labels), results("other", wrong)], baseline="base")

    first, second = (group.difference for group in got.subtasks if group.spec == "other")
    assert first.p_value < 1e-5
    assert first.p_holm == 2 * first.p_value
    assert second.p_holm == 1
    _, other = got.specs
    assert other.difference.p_holm == other.difference.p_value


def test_jobs_without_a_task_form_no_groups():
    got = compare_candidates(jobs({}), [results("only", {"a": "yes"})], baseline="only")

    assert (got.tasks, got.subtasks, got.by_difference("only")) == ((), (), [])


def test_a_spec_without_a_label_has_no_accuracy():
    got = compare_candidates(
        jobs(), [results("good", {"a": "yes"}), results("none", {}, failed=list(TRUTHS))], baseline="good"
    )

    _, none = got.specs
    assert (none.accuracy, none.difference, none.failures) == (None, None, 4)


def test_an_evaluation_survives_a_json_round_trip(evaluation):
    assert Evaluation.from_json(evaluation.to_json()) == evaluation
    with pytest.raises(ValueError, match="manifest_uri"):
        Evaluation.from_json("{}")
