"""The least certain labels become tasks of Label Studio and samples of FiftyOne, and answers become a manifest."""

import base64
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import polars as pl
import pytest
from PIL import Image

from infra.processes import free_port
from tests.clips import write_clip

ROOT = Path(__file__).parents[4]

IMPORT = ("manifest", "import", "--layout", "label-studio", "--manifest")


@pytest.fixture(scope="module")
def classified_manifest(tmp_path_factory, reelabel):
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
        "answer": ["red", None, None, None],
    }
    pl.DataFrame(rows).write_parquet(folder / "review.parquet")
    completed = reelabel("classify", str(folder / "review.parquet"))
    assert completed.returncode == 1, completed.stderr
    return folder / "review.parquet"


@pytest.fixture(scope="module")
def tasks(reelabel, classified_manifest):  # noqa: ARG001 - it has been asked
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


@pytest.fixture(scope="module")
def samples(reelabel, tasks, tmp_path_factory):  # noqa: ARG001 - the last run is that of the tasks
    """A folder with the samples of all labels of the manifest; it is named as from the home directory."""
    home = tmp_path_factory.mktemp("samples")
    folder = home / "review"
    written = reelabel("results", "last", "--format", "fiftyone", "--folder", "~/review", HOME=str(home))
    assert written.returncode == 0, written.stderr
    return folder


def test_samples_are_the_frames_that_the_model_saw_and_its_answers(samples, tasks):
    listed = json.loads((samples / "samples.json").read_text())["samples"]

    shown = {task["data"]["job_id"]: len(task["data"]["frames"]) for task in tasks}
    assert [*dict.fromkeys(sample["job_id"] for sample in listed)] == [*shown]
    assert {name: sum(sample["job_id"] == name for sample in listed) for name in shown} == shown
    assert [sample["frame"] for sample in listed if sample["job_id"] == "whole"] == [*range(shown["whole"])]
    for sample in listed:
        with Image.open(samples / sample["filepath"]) as image:
            assert image.format == "WEBP"
        assert sample["prediction"]["label"] in sample["choices"]
        assert 0 < sample["prediction"]["confidence"] <= 1
        known = {"_cls": "Classification", "label": "red", "confidence": None}
        assert sample["ground_truth"] == (known if sample["job_id"] == "whole" else None)


def test_samples_are_written_to_a_new_folder_alone(reelabel, samples):
    before = (samples / "samples.json").read_bytes()

    refused = reelabel("results", "last", "--format", "fiftyone", "--folder", str(samples))

    assert refused.returncode == 2
    assert "File exists" in " ".join(refused.stderr.split())
    assert (samples / "samples.json").read_bytes() == before


_REVIEWERS = """
from urllib.request import urlopen

import fiftyone as fo

def review(session):
    assert b"FiftyOne" in urlopen(session.url).read()
    assert [[sample.frame for sample in group] for group in session.view.iter_dynamic_groups()] == SHOWN
    for job_id, answer in ANSWERS.items():
        sample = session.dataset.match({"job_id": job_id}).last()
        sample["ground_truth"] = fo.Classification(label=answer)
        sample.save()

fo.Session.wait = review
"""


@pytest.fixture(scope="module")
def fiftyone_python(tmp_path_factory):
    """A Python with FiftyOne, beside all that the application has."""
    folder = tmp_path_factory.mktemp("fiftyone")
    venv.create(folder / "venv")
    [site] = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "application.pth").write_text(sysconfig.get_path("purelib"))
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "-r", Path(__file__).with_name("fiftyone.txt")], check=True, timeout=500)
    return python


@pytest.mark.system
@pytest.mark.timeout(1200)  # its packages are installed first
def test_answers_given_in_fiftyone_become_a_manifest(
    reelabel, classified_manifest, samples, tasks, fiftyone_python, tmp_path
):
    page = (ROOT / "docs" / "results.md").read_text()
    [documented] = re.findall(r"```python\n(import fiftyone as fo\n.*?)```", page, re.DOTALL)
    answers = {"whole": "blue", "part": "square"}
    constants = f"ANSWERS = {answers}\nSHOWN = {[[*range(len(task['data']['frames']))] for task in tasks]}\n"
    (tmp_path / "script.py").write_text(constants + _REVIEWERS + documented)
    private = {"HOME": str(tmp_path), "FIFTYONE_DATABASE_DIR": str(tmp_path / "mongo"), "FIFTYONE_DO_NOT_TRACK": "1"}
    app = {"FIFTYONE_DEFAULT_APP_ADDRESS": "127.0.0.1", "FIFTYONE_DEFAULT_APP_PORT": str(free_port())}
    reviewed = subprocess.run(
        [fiftyone_python, tmp_path / "script.py"],
        cwd=samples.parent,
        env=os.environ | private | app,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert reviewed.returncode == 0, reviewed.stderr

    source, target = str(samples.parent / "reviewed" / "samples.json"), str(tmp_path / "reviewed.parquet")
    imported = reelabel(
        "manifest", "import", source, target, "--layout", "fiftyone", "--manifest", str(classified_manifest)
    )

    assert imported.returncode == 0, imported.stderr
    assert "Left out 1 job without an answer." in imported.stdout
    assert dict(pl.read_parquet(target).select("job_id", "answer").iter_rows()) == answers


def test_answers_become_a_manifest_whose_jobs_keep_their_labels(reelabel, classified_manifest, tasks, tmp_path):
    labels = {task["data"]["job_id"]: task["predictions"][0]["result"][0]["value"]["choices"][0] for task in tasks}
    export = [reviewed(task, None, labels[task["data"]["job_id"]]) for task in tasks]
    (tmp_path / "export.json").write_text(json.dumps(export))

    imported = reelabel(
        *IMPORT, str(classified_manifest), str(tmp_path / "export.json"), str(tmp_path / "review.parquet")
    )
    continued = reelabel("classify", str(tmp_path / "review.parquet"))

    assert imported.returncode == 0, imported.stderr
    answered = pl.read_parquet(tmp_path / "review.parquet")
    assert dict(answered.select("job_id", "answer").iter_rows()) == labels
    columns = ["job_id", "prompt", "choices", "start_s", "task", "video_uris"]
    before = pl.read_parquet(classified_manifest).filter(pl.col("job_id") != "absent").select(columns).sort("job_id")
    assert answered.select(columns).sort("job_id").equals(before)
    assert continued.returncode == 0, continued.stderr
    assert "3 (3 already finished)" in continued.stdout


def test_disagreement_and_missing_answers_cost_their_tasks_alone(reelabel, classified_manifest, tasks, tmp_path):
    first, second, third = tasks
    wrong = first["data"]["choices"]
    export = [reviewed(first, *(choice["value"] for choice in wrong)), reviewed(second), reviewed(third, "neither")]
    export.append(reviewed(second, second["data"]["choices"][0]["value"]) | {"id": 4})
    strange = {"data": second["data"] | {"job_id": "stranger"}, "predictions": []}
    export.append(reviewed(strange, "yes"))
    (tmp_path / "export.json").write_text(json.dumps(export))

    files = [str(classified_manifest), str(tmp_path / "export.json"), str(tmp_path / "some.parquet")]
    imported = reelabel(*IMPORT, *files, "--keep-going")

    assert imported.returncode == 1, imported.stderr
    assert "Left out 1 task without an answer." in imported.stdout
    assert pl.read_parquet(tmp_path / "some.parquet")["job_id"].to_list() == [second["data"]["job_id"]]
    rejected = (tmp_path / "rejected.csv").read_text()
    assert "it has different answers" in rejected
    assert "neither" in rejected
    assert "has no such job" in rejected


@pytest.mark.parametrize(
    ("export", "message"),
    [
        ("{}", "is no export of Label Studio"),
        ("[]", "is no export of Label Studio"),
        ('[{"job_id": "a", "answer": "yes"}]', "not in the format JSON"),
        ('[{"data": {"image": "x.png"}, "annotations": []}]', "is not one of"),
        ('[{"data": {"job_id": 7}, "annotations": []}]', "is not one of"),
        ('[{"data": {"job_id": "a\\ud800"}, "annotations": []}]', "is not one of"),
        ('[{"data": {"job_id": "whole"}, "annotations": [5, {"result": 5}, {"result": [5]}]}]', "has an answer yet"),
        (
            '[{"data": {"job_id": "whole"}, "annotations": [{"result": [{"from_name": "answer", "value": 5}]}]}]',
            "has an answer yet",
        ),
    ],
)
def test_another_file_is_refused_in_a_sentence(reelabel, classified_manifest, tmp_path, export, message):
    (tmp_path / "export.json").write_text(export)

    imported = reelabel(*IMPORT, str(classified_manifest), str(tmp_path / "export.json"), str(tmp_path / "x.parquet"))

    assert imported.returncode == 2
    assert message in " ".join(imported.stderr.split())


@pytest.mark.usefixtures("tasks")
def test_rows_are_printed_up_to_a_limit(reelabel):
    whole = reelabel("results", "last", "--format", "csv").stdout.splitlines()
    table = reelabel("results", "last", "--limit", "1").stdout

    assert reelabel("results", "last", "--format", "csv", "--limit", "2").stdout.splitlines() == whole[:3]
    assert len(pl.read_json(reelabel("results", "last", "--format", "json", "--limit", "1").stdout.encode())) == 1
    assert table.count("│\n") == 1
    assert "more; use --format csv" in table


@pytest.mark.usefixtures("classified_manifest")
@pytest.mark.parametrize(
    "options",
    [
        ["--chunks"],
        ["--raw"],
        ["--calibrated"],
        ["--limit", "501"],
        ["--limit", "0"],
        ["--folder", "samples"],
        ["--format", "fiftyone"],
    ],
)
def test_options_of_results_that_do_not_fit_are_refused(reelabel, options):
    refused = reelabel("results", "last", "--format", "label-studio", *options)

    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layout", "label-studio"], "needs --manifest"),
        (["--layout", "fiftyone"], "needs --manifest"),
        (
            ["--layout", "csv", "--manifest", "jobs.parquet"],
            "--manifest is for --layout label-studio, fiftyone; leave it out.",
        ),
        (
            ["--layout", "label-studio", "--manifest", "jobs.parquet", "--videos", "/v"],
            "--videos is for --layout nextqa, mvbench, videomme, streamingbench, csv; leave it out.",
        ),
    ],
)
def test_options_of_the_import_that_do_not_fit_are_refused(reelabel, tmp_path, options, message):
    (tmp_path / "export.json").write_text("[]")

    refused = reelabel("manifest", "import", str(tmp_path / "export.json"), str(tmp_path / "x.parquet"), *options)

    assert refused.returncode == 2
    assert message in " ".join(refused.stderr.split())


def test_labels_whose_question_has_changed_are_left_out_and_counted(reelabel, tmp_path):
    video = str(write_clip(tmp_path / "a.mp4", frames=3))
    jobs = pl.DataFrame(
        {"job_id": ["a", "b"], "video_uri": video, "prompt": "Which colour?", "choices": [["red", "blue"]] * 2}
    )
    jobs.write_parquet(tmp_path / "changed.parquet")
    assert reelabel("classify", str(tmp_path / "changed.parquet")).returncode == 0
    jobs.with_columns(prompt=pl.Series(["Which colour?", "Which shape?"])).write_parquet(tmp_path / "changed.parquet")

    some = reelabel("results", "last", "--format", "label-studio")
    (tmp_path / "changed.parquet").unlink()
    gone = reelabel("results", "last", "--format", "label-studio")

    assert [task["data"]["job_id"] for task in json.loads(some.stdout)] == ["a"]
    assert "Left out 1 label" in " ".join(some.stderr.split())
    assert gone.returncode == 2
    assert "frames are unavailable" in " ".join(gone.stderr.split())
