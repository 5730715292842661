"""Runs whose jobs show several videos and images, answered by a real server and by a real engine."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from io import BytesIO

import numpy as np
import polars as pl
import pytest
from PIL import Image
from sqlalchemy import select

from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import FAILURE, RESULT
from tasks.demo.clips import Encoding, draw_clip, write_clip
from tasks.demo.shapes import QUESTIONS
from tests.command_line import reelabel as run_command
from tests.report.test_page import cards_of

pytestmark = pytest.mark.system

TIMEOUT_S = 300
MIXED = ["both", "swapped", "pictured", "around", "alone", "gone"]


@pytest.fixture(scope="module")
def server(vllm_server):
    return vllm_server


@pytest.fixture(scope="module")
def root(tmp_path_factory, own_services):
    """Two clips and two pictures on S3."""
    folder, objects, rng = tmp_path_factory.mktemp("media"), ObjectStore(own_services.store), np.random.default_rng(3)
    root = f"{own_services.store.uri}/media"
    for name in ("a", "b"):
        _, frames = draw_clip(rng)
        write_clip(folder / f"{name}.mp4", frames, Encoding(container="mp4", codec="libx264", gop=8))
        objects.replace(f"{root}/{name}.mp4", (folder / f"{name}.mp4").read_bytes())
        objects.replace(f"{root}/{name}.png", picture_of(frames[0]))
    return root


def picture_of(pixels):
    file = BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


@pytest.fixture(scope="module")
def media_manifest(root, tmp_path_factory):
    prompt, choices = QUESTIONS["colour"]

    def row(job_id, *shown, **more):
        parts = [{"type": f"{kind}_url", f"{kind}_url": {"url": f"{root}/{name}"}} for kind, name in shown]
        content = [*parts, {"type": "text", "text": prompt}]
        return {"job_id": job_id, "messages": json.dumps([{"role": "user", "content": content}])} | more

    a, b, picture = ("video", "a.mp4"), ("video", "b.mp4"), ("image", "a.png")
    rows = [
        {"job_id": "both", "video_uris": [f"{root}/a.mp4", f"{root}/b.mp4"], "prompt": prompt},
        {"job_id": "swapped", "video_uris": [f"{root}/b.mp4", f"{root}/a.mp4"], "prompt": prompt},
        row("pictured", a, picture),
        row("around", a, ("image", "b.png"), b),
        row("gone", a, ("image", "gone.png")),
        {"job_id": "alone", "video_uri": f"{root}/a.mp4", "prompt": prompt},
    ]
    path = tmp_path_factory.mktemp("manifest") / "mixed.parquet"
    rows = [each | {"choices": list(choices)} for each in rows]
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    return str(path)


def rows(engine, table, dataset):
    query = select(table).where(table.c.dataset == dataset)
    with engine.connect() as connection:
        return {row["job_id"]: row for row in connection.execute(query).mappings()}


@pytest.fixture(scope="module", autouse=True)
def answered(reelabel, media_manifest):
    run = reelabel("classify", media_manifest, "--dataset", "served")
    assert run.returncode == 1, run.stderr  # one picture is missing
    return run


def test_every_job_has_one_row_that_tells_of_all_that_it_shows(engine, answered, root):
    labels, failures = rows(engine, RESULT, "served"), rows(engine, FAILURE, "served")

    assert "Reconciled: 6 jobs = 5 labels + 1 failure." in answered.stdout
    assert {*labels} == {*MIXED} - {"gone"}
    alone = labels["alone"]
    assert labels["pictured"]["frames_used"] == alone["frames_used"] + 1
    assert labels["pictured"]["prompt_tokens"] > alone["prompt_tokens"]
    assert labels["both"]["prompt_tokens"] == labels["swapped"]["prompt_tokens"]
    assert labels["both"]["probabilities"] != labels["swapped"]["probabilities"]
    assert alone["source_fingerprint"] == json.loads(labels["both"]["source_fingerprint"])[0]
    assert len(json.loads(labels["around"]["source_fingerprint"])) == 3
    failure = failures["gone"]
    assert (failure["code"], failure["source_fingerprint"]) == ("video_missing", None)
    assert f"{root}/gone.png" in failure["message"]


def test_an_engine_answers_as_the_server_does(own_environment, media_manifest, engine):
    run = run_command(own_environment | {"COLUMNS": "200"}, "classify", media_manifest, "--dataset", "loaded")

    assert "Reconciled: 6 jobs = 5 labels + 1 failure." in run.stdout, run.stderr
    served, loaded = rows(engine, RESULT, "served"), rows(engine, RESULT, "loaded")
    for job_id, row in loaded.items():
        assert row["probabilities"] == pytest.approx(served[job_id]["probabilities"], abs=1e-3), job_id
        assert row["prompt_tokens"] == served[job_id]["prompt_tokens"], job_id


def test_workers_on_other_machines_answer_as_the_run_does(served, media_manifest, engine, tmp_path):
    settings = {"RUN_EXECUTOR": "remote", "RUN_EXTRACT_FLOWS": "0", "RUN_INFER_FLOWS": "0"}
    environment = served | {f"REELABEL_{name}": value for name, value in settings.items()}
    commands = (["worker", "extract"], ["worker", "infer"], ["classify", media_manifest, "--dataset", "remote"])
    processes = []
    try:
        for number, arguments in enumerate(commands):
            with (tmp_path / f"{number}.log").open("w") as log:
                command = [sys.executable, "-P", "-m", "flows.cli.main", *arguments]
                options = {"stdout": log, "stderr": log, "cwd": tmp_path, "start_new_session": True}
                processes.append(subprocess.Popen(command, env=environment, **options))
        processes[-1].wait(TIMEOUT_S)
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    assert "Reconciled: 6 jobs = 5 labels + 1 failure." in (tmp_path / "2.log").read_text()
    served_rows, remote = rows(engine, RESULT, "served"), rows(engine, RESULT, "remote")
    names = ("source_fingerprint", "prompt_tokens", "frames_used", "label")
    assert {job_id: [row[name] for name in names] for job_id, row in remote.items()} == {
        job_id: [row[name] for name in names] for job_id, row in served_rows.items()
    }


def test_a_prompt_is_printed_with_all_that_it_shows(reelabel, media_manifest, engine, root):
    shown = reelabel("prompt", "around", "--manifest", media_manifest)
    facts = json.loads(reelabel("prompt", "around", "--manifest", media_manifest, "--json").stdout)

    assert shown.returncode == 0, shown.stderr
    assert f"frames of {root}/a.mp4, at 0 " in shown.stdout
    assert f"The image {root}/b.png." in shown.stdout
    assert facts["prompt_tokens"] == rows(engine, RESULT, "served")["around"]["prompt_tokens"]
    assert [(each["kind"], each["uri"]) for each in facts["media"]] == [
        ("video", f"{root}/a.mp4"),
        ("image", f"{root}/b.png"),
        ("video", f"{root}/b.mp4"),
    ]


def test_the_page_shows_the_frames_of_each(reelabel, tmp_path, root):
    page = tmp_path / "page.html"
    completed = reelabel("report", "last", "--out", str(page), "--job", "around")

    assert completed.returncode == 0, completed.stderr
    media = cards_of(page.read_text())["around"].partition("What the model saw")[2].partition("<h3>")[0]
    assert re.findall(r"<h4>\d\. \w+ <code>(.*?)</code>", media) == [
        f"{root}/{name}" for name in ("a.mp4", "b.png", "b.mp4")
    ]
    assert media.count('<ul class="strip">') == 3


def test_a_survey_knows_each_video_and_no_image(reelabel, media_manifest):
    survey = reelabel("manifest", "survey", media_manifest, "--format", "json")

    assert json.loads(survey.stdout)["clips"] == 2, survey.stderr


def test_a_replaced_picture_is_noticed_by_those_jobs_that_show_it(reelabel, media_manifest, own_services, root):
    again = reelabel("classify", media_manifest, "--dataset", "served")
    ObjectStore(own_services.store).replace(f"{root}/b.png", picture_of(np.zeros((56, 56, 3), np.uint8)))

    changed = reelabel("backfill", "--manifest", media_manifest, "--dataset", "served", "--changed-video", "--dry-run")
    repeated = reelabel("classify", media_manifest, "--dataset", "served")

    assert "6 (6 already finished)" in again.stdout, again.stdout
    assert "Would answer 1 job on 2 videos" in changed.stdout, changed.stderr
    assert "1 label, 0 failures" in repeated.stdout, repeated.stdout


def test_what_cannot_be_shown_is_refused_before_anything_is_asked(served, media_manifest):
    def refusal(*options, **changed):
        run = run_command(
            served | {"COLUMNS": "200"} | changed, "classify", media_manifest, "--dataset", "refused", *options
        )
        assert run.returncode != 0, run.stdout
        return " ".join(run.stderr.split())

    assert "With chunk_s, a job must show one video and no image; set chunk_s to 0. 5 rows" in refusal("--chunk-s", "4")
    images = refusal(REELABEL_SERVER_FRAMES="images")
    assert "a model cannot tell those of several videos and images apart, but jobs show 2 videos and 1 image" in images
    assert "server.frames png cannot show 2 videos and 1 image" in refusal(REELABEL_SERVER_FRAMES="png")
