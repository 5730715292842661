"""Answers of reviewers in Label Studio and FiftyOne become known answers of the jobs that they reviewed."""

import json

import polars as pl
import pytest

from infra.errors import ManifestError
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.importers.reviewed import read_fiftyone, read_label_studio

PARTS = [{"type": "video_url", "video_url": {"url": "s3://b/m.mp4"}}, {"type": "text", "text": "Which?"}]
MESSAGES = json.dumps([{"role": "user", "content": PARTS}])


@pytest.fixture
def mixed_manifest(tmp_path):
    """A manifest with jobs of one video, of two, and of messages; the first has an answer."""
    pl.DataFrame(
        {
            "job_id": ["one", "two", "asked"],
            "video_uri": ["s3://b/a.mp4", None, None],
            "video_uris": [None, ["s3://b/a.mp4", "s3://b/b.mp4"], None],
            "prompt": ["Which?", "Which?", None],
            "messages": [None, None, MESSAGES],
            "choices": [["red", "blue"]] * 3,
            "start_s": [1.5, None, None],
            "answer": ["red", None, None],
        }
    ).write_parquet(tmp_path / "jobs.parquet")
    return tmp_path / "jobs.parquet"


@pytest.fixture
def read(tmp_path, mixed_manifest):
    """Return a function that reads an export of tasks."""

    def read(*tasks):
        (tmp_path / "export.json").write_text(json.dumps(tasks))
        return read_label_studio(tmp_path / "export.json", str(mixed_manifest), ObjectStore())

    return read


@pytest.fixture
def read_samples(tmp_path, mixed_manifest):
    """Return a function that reads an export of samples, each given as a job's id and its answer."""

    def read_samples(*frames):
        samples = [{"job_id": job_id, "ground_truth": answer and {"label": answer}} for job_id, answer in frames]
        (tmp_path / "samples.json").write_text(json.dumps({"samples": samples}))
        return read_fiftyone(tmp_path / "samples.json", str(mixed_manifest), ObjectStore())

    return read_samples


def task(job_id, *answers, control="answer", **annotated):
    results = [[{"from_name": control, "value": {"choices": [answer]}}] for answer in answers]
    return {"data": {"job_id": job_id}, "annotations": [{"result": result, **annotated} for result in results]}


def test_jobs_of_any_kind_are_written_as_they_were_with_the_answer(read):
    frame = read(task("one", "red"), task("two", "blue", "blue"), task("asked", "red")).valid()

    assert frame["answer"].to_list() == ["red", "blue", "red"]
    assert frame["video_uri"].to_list() == ["s3://b/a.mp4", None, None]
    assert frame["video_uris"].to_list() == [None, ["s3://b/a.mp4", "s3://b/b.mp4"], None]
    assert frame["prompt"].to_list() == ["Which?", "Which?", None]
    assert [text and json.loads(text) for text in frame["messages"]] == [None, None, json.loads(MESSAGES)]
    assert frame["start_s"].to_list() == [1.5, None, None]


@pytest.mark.parametrize(
    ("system", "column"), [([{"role": "system", "content": "Be strict."}], None), ([], "Be strict.")]
)
def test_the_system_prompt_of_messages_or_beside_them_is_kept(system, column, tmp_path):
    given = {"messages": json.dumps([*system, *json.loads(MESSAGES)]), "system_prompt": column}
    jobs = pl.DataFrame({"job_id": ["asked"], "choices": [["red", "blue"]], **{name: [given[name]] for name in given}})
    jobs.cast({"system_prompt": pl.String}).write_parquet(tmp_path / "jobs.parquet")
    (tmp_path / "export.json").write_text(json.dumps([task("asked", "red")]))

    found = read_label_studio(tmp_path / "export.json", str(tmp_path / "jobs.parquet"), ObjectStore()).valid()

    assert found.select("answer", *given).rows() == [("red", *given.values())]


def test_tasks_without_an_answer_are_counted_and_those_without_one_answer_are_rejected(read):
    found = read(
        task("one", "red", "blue"),
        task("other", "red"),
        task("two"),
        task("two", "red", was_cancelled=True),
        task("two", "red", control="remark"),
        task("asked", "red"),
        task("asked", "red"),
    )

    jobs, rejects = found.divided()

    assert jobs.select("job_id", "answer").rows() == [("asked", "red")]
    assert found.notes == ["Left out 3 tasks without an answer."]
    disagree, unknown = rejects["reason"].to_list()
    assert "it has different answers: 'red', 'blue'" in disagree
    assert "has no such job" in unknown


@pytest.mark.parametrize(
    ("tasks", "fault"),
    [
        ([], "is no export of Label Studio"),
        ([task("one")], "No job of .* has an answer yet"),
        ([task("one", "red"), {"data": {}, "annotations": []}], "Task 2 of .* is not one of"),
        ([{"data": {"job_id": "one"}}], "Task 1 of .* is not one of"),
    ],
)
def test_anything_but_an_export_with_answers_is_refused(read, tasks, fault):
    with pytest.raises(ManifestError, match=fault):
        read(*tasks)


def test_one_answered_frame_is_enough_and_the_answer_of_the_manifest_contradicts_no_other(read_samples):
    found = read_samples(
        ("one", "red"),
        ("one", "blue"),
        ("one", "red"),
        ("two", None),
        ("two", "blue"),
        ("asked", None),
        ("other", "red"),
    )

    jobs, rejects = found.divided()

    assert jobs.select("job_id", "answer").rows() == [("one", "blue"), ("two", "blue")]
    assert found.notes == ["Left out 1 job without an answer."]
    [unknown] = rejects["reason"].to_list()
    assert "has no such job" in unknown


def test_frames_of_a_job_with_different_answers_are_rejected(read_samples):
    found = read_samples(("one", "red"), ("two", "red"), ("two", "blue"))

    jobs, rejects = found.divided()

    assert jobs.select("job_id", "answer").rows() == [("one", "red")]
    assert "it has different answers: 'red', 'blue'" in rejects["reason"].item()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("[]", "is no samples.json of FiftyOne"),
        ('{"samples": []}', "is no samples.json of FiftyOne"),
        ('{"samples": [{"job_id": "one", "ground_truth": {"label": "red"}}, 5]}', "Sample 2 of .* is not one of"),
        ('{"samples": [{"job_id": "one", "ground_truth": 5}]}', "No job of .* has an answer yet"),
    ],
)
def test_anything_but_samples_with_answers_is_refused(tmp_path, mixed_manifest, content, fault):
    (tmp_path / "samples.json").write_text(content)

    with pytest.raises(ManifestError, match=fault):
        read_fiftyone(tmp_path / "samples.json", str(mixed_manifest), ObjectStore())
