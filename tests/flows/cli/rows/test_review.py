"""The least certain labels become tasks of Label Studio, and an export of their answers a manifest with answers."""

import base64
import io
import json

import polars as pl
import pytest
from PIL import Image

from tests.clips import write_clip

pytestmark = pytest.mark.xdist_group("test_review")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory, reelabel):
    """A manifest whose jobs were asked: about one video, a segment of it, two videos, and one that is missing."""
    folder = tmp_path_factory.mktemp("jobs")
    video = str(write_clip(folder / "a.mp4", frames=30, gop=10))
    rows = {
        "job_id": ["whole", "part", "both", "absent"],
        "video_uri": [video, video, None, str(folder / "none.mp4")],
        "video_uris": [None, None, [video, video], None],
        "start_s": [None, 0.2, None, None],
        "prompt": ["Which colour?", "Which shape?", "Are they equal?", "Which colour?"],
        "choices": [["red", "blue"], ["circle", "square"], ["yes", "no"], ["red", "blue"]],
        "task": ["colour", "shape", "both", "colour"],
    }
    pl.DataFrame(rows).write_parquet(folder / "review.parquet")
    ended = reelabel("classify", str(folder / "review.parquet"))
    assert ended.returncode == 1, ended.stderr
    return folder / "review.parquet"


@pytest.fixture(scope="module")
def tasks(reelabel, manifest):  # noqa: ARG001 - it has been asked
    """The tasks of all labels of the manifest."""
    written = reelabel("results", "last", "--format", "label-studio")
    assert written.returncode == 0, written.stderr
    return json.loads(written.stdout)


def reviewed(task, *annotations):
    """A task as Label Studio exports it: each annotation has chosen one answer, or was cancelled (None)."""
    results = [
        {
            "id": number,
            "was_cancelled": answer is None,
            "result": []
            if answer is None
            else [
                {
                    "from_name": "answer",
                    "to_name": "frames",
                    "type": "choices",
                    "origin": "manual",
                    "value": {"choices": [answer]},
                }
            ],
        }
        for number, answer in enumerate(annotations)
    ]
    return {"id": 1, "data": task["data"], "annotations": results, "predictions": task["predictions"]}


def test_a_task_has_what_the_model_saw_and_answered(reelabel, tasks):
    rows = pl.read_json(reelabel("results", "last", "--format", "json").stdout.encode())
    labelled = rows.filter(pl.col("label").is_not_null()).sort("margin", "job_id")

    assert [task["data"]["job_id"] for task in tasks] == labelled["job_id"].to_list()
    for task, row in zip(tasks, labelled.iter_rows(named=True), strict=True):
        [prediction] = task["predictions"]
        [result] = prediction["result"]
        assert result["value"] == {"choices": [row["label"]]}
        assert row["label"] in [choice["value"] for choice in task["data"]["choices"]]
        assert prediction["score"] == pytest.approx(max(row["probabilities"]))
        images = [base64.b64decode(each.partition(",")[2]) for each in task["data"]["frames"]]
        assert len(images) >= 1
        assert all(Image.open(io.BytesIO(image)).format == "WEBP" for image in images)


def test_the_lowest_margins_come_first_and_are_limited(reelabel, tasks):
    written = reelabel("results", "last", "--format", "label-studio", "--limit", "1")

    assert json.loads(written.stdout) == tasks[:1]


def test_answers_become_a_manifest_whose_jobs_keep_their_labels(reelabel, manifest, tasks, tmp_path):
    labels = {task["data"]["job_id"]: task["predictions"][0]["result"][0]["value"]["choices"][0] for task in tasks}
    export = [reviewed(task, None, labels[task["data"]["job_id"]]) for task in tasks]
    (tmp_path / "export.json").write_text(json.dumps(export))

    imported = reelabel(
        "manifest",
        "import",
        str(tmp_path / "export.json"),
        str(tmp_path / "review.parquet"),
        "--layout",
        "label-studio",
    )
    continued = reelabel("classify", str(tmp_path / "review.parquet"))

    assert imported.returncode == 0, imported.stderr
    answered = pl.read_parquet(tmp_path / "review.parquet")
    assert dict(answered.select("job_id", "answer").iter_rows()) == labels
    columns = ["job_id", "prompt", "choices", "start_s", "task", "video_uris"]
    before = pl.read_parquet(manifest).filter(pl.col("job_id") != "absent").select(columns).sort("job_id")
    assert answered.select(columns).sort("job_id").equals(before)
    assert continued.returncode == 0, continued.stderr
    assert "3 (3 already ended)" in continued.stdout


def test_disagreement_and_missing_answers_cost_their_tasks_alone(reelabel, tasks, tmp_path):
    first, second, third = tasks
    wrong = first["data"]["choices"]
    export = [reviewed(first, *(choice["value"] for choice in wrong)), reviewed(second), reviewed(third, "neither")]
    export.append(reviewed(second, second["data"]["choices"][0]["value"]) | {"id": 4})
    (tmp_path / "export.json").write_text(json.dumps(export))

    imported = reelabel(
        *("manifest", "import", str(tmp_path / "export.json"), str(tmp_path / "some.parquet")),
        *("--layout", "label-studio", "--keep-going"),
    )

    assert imported.returncode == 1, imported.stderr
    assert "Left out 1 task without an answer." in imported.stdout
    assert pl.read_parquet(tmp_path / "some.parquet")["job_id"].to_list() == [second["data"]["job_id"]]
    rejected = (tmp_path / "rejected.csv").read_text()
    assert "its reviewers disagree" in rejected
    assert "neither" in rejected


@pytest.mark.parametrize(
    ("export", "said"),
    [
        ("{}", "is no export of Label Studio"),
        ("[]", "is no export of Label Studio"),
        ('[{"job_id": "a", "answer": "yes"}]', "not in the format JSON"),
        ('[{"data": {"image": "x.png"}, "annotations": []}]', "is not one of"),
    ],
)
def test_another_file_is_refused_in_a_sentence(reelabel, tmp_path, export, said):
    (tmp_path / "export.json").write_text(export)

    imported = reelabel(
        "manifest", "import", str(tmp_path / "export.json"), str(tmp_path / "x.parquet"), "--layout", "label-studio"
    )

    assert imported.returncode == 2
    assert said in " ".join(imported.stderr.split())


@pytest.mark.usefixtures("manifest")
def test_options_that_do_not_fit_are_refused(reelabel):
    refused = reelabel("results", "last", "--format", "label-studio", "--chunks")

    assert refused.returncode == 2
    assert "cannot be combined" in " ".join(refused.stderr.split())
