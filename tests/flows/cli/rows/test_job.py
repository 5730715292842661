"""`reelabel job`: all that is known of one job, on one page or as JSON."""

import base64
import json
import re

import polars as pl
import pytest
from PIL import Image
from sqlalchemy import update
from sqlalchemy.dialects.postgresql import JSONB

from flows.cli.rows.job import image_codes
from tasks.database.tables import RESULT, RESULT_HISTORY
from tests.clips import write_clip


@pytest.fixture(scope="module")
def classified_manifest(tmp_path_factory, reelabel):
    """A manifest whose jobs were asked: one on a video, one that is missing, one on two videos, each once more."""
    folder = tmp_path_factory.mktemp("jobs")
    video = write_clip(folder / "a.mp4", frames=30, gop=10)
    uris = [str(video), str(folder / "none.mp4"), None]
    rows = {
        "job_id": ["colour", "absent, 2", "both"],
        "video_uri": uris,
        "video_uris": [None, None, [str(video), str(video)]],
        "prompt": ["Which colour\x1b[31m?"] * 3,
        "choices": [["red", "blue"]] * 3,
        "answer": ["red"] * 3,
    }
    pl.DataFrame(rows).write_parquet(folder / "clips.parquet")
    for more in ([], ["--force"]):
        completed = reelabel("classify", str(folder / "clips.parquet"), *more)
        assert completed.returncode == 1, completed.stderr
    return folder / "clips.parquet"


def test_a_page_has_the_outcome_the_question_the_frames_and_the_history(reelabel, classified_manifest, tmp_path):
    shown = reelabel("job", "colour", "--sheet", str(tmp_path / "x.png"))

    assert shown.returncode == 0, shown.stderr
    text = shown.stdout
    assert text.startswith("colour of clips\n")
    assert "Which colour" in text
    assert "\x1b" not in text
    assert f"Video: {classified_manifest.parent}/a.mp4\n" in text
    assert "16 frames by keyframes, 3 decoded, at 0.000 s" in text
    assert "the known answer is red." in text
    assert text.count("replaced") == 1
    assert " by " in text.split("replaced")[1]
    assert "To answer it again: reelabel backfill --ids colour --dataset clips --force" in text
    assert f"Picture of the frames: {tmp_path}/x.png" in text
    assert Image.open(tmp_path / "x.png").width > 1000


@pytest.mark.usefixtures("classified_manifest")
def test_a_picture_without_a_name_is_kept_in_the_home_folder(reelabel, tmp_path):
    shown = reelabel("job", "colour", "--dataset", "clips", REELABEL_HOME=str(tmp_path))

    [line] = [line for line in shown.stdout.splitlines() if line.startswith("Picture of the frames: ")]
    assert line.startswith(f"Picture of the frames: {tmp_path}/jobs/")
    assert Image.open(line.removeprefix("Picture of the frames: ")).format == "PNG"


def test_what_cannot_be_copied_to_the_home_folder_is_no_failure_of_a_command(reelabel, classified_manifest, tmp_path):
    for name in ("jobs", "reports"):
        (tmp_path / name).touch()

    shown = reelabel("job", "colour", "--dataset", "clips", REELABEL_HOME=str(tmp_path))
    run = reelabel("classify", str(classified_manifest), REELABEL_HOME=str(tmp_path))

    assert (shown.returncode, shown.stderr, "Picture of" in shown.stdout) == (0, "", False)
    assert run.returncode == 1  # of the job that fails
    assert re.search(r"^Report: \w+://.+/reports/[-\w]+\.html$", run.stdout, re.MULTILINE), run.stdout + run.stderr


def test_a_failed_job_says_why_and_after_how_many_attempts(reelabel, classified_manifest):
    shown = reelabel("job", "absent, 2")

    assert shown.returncode == 0, shown.stderr
    assert re.search(rf"^video_missing: .*{classified_manifest.parent}/none\.mp4", shown.stdout, re.MULTILINE)
    assert re.search(r"^Failed in stage fetch after \d attempts?\.$", shown.stdout, re.MULTILINE)
    assert "No frames were extracted." in shown.stdout
    assert """To answer it again: reelabel backfill --ids '"absent, 2"' --dataset clips\n""" in shown.stdout


def test_each_video_of_a_job_has_its_frames(reelabel, classified_manifest, tmp_path):
    shown = reelabel("job", "both", "--sheet", str(tmp_path / "x.png"))

    assert shown.stdout.count(f"Video: {classified_manifest.parent}/a.mp4") == 2, shown.stderr
    assert shown.stdout.count("frames by keyframes, 3 decoded") == 2


@pytest.mark.usefixtures("classified_manifest")
def test_an_answer_in_words_that_says_nothing_is_shown_as_such(reelabel, engine):
    nothing = {"label": None, "probabilities": None, "margin": None}
    is_both = {"job_id": "both"}
    with engine.begin() as connection:
        words = nothing | {"choice_index": None, "data": JSONB.NULL, "finish_reason": "stop", "output_tokens": 1}
        connection.execute(update(RESULT).filter_by(**is_both).values(words))
        connection.execute(update(RESULT_HISTORY).filter_by(**is_both).values(nothing | {"text": ""}))

    shown = reelabel("job", "both").stdout

    assert re.search(r"^null$", shown, re.MULTILINE), shown
    assert "1 token, ended by stop." in shown
    assert re.findall(r" clips .* (null|no words) ", shown) == ["null", "no words"], shown


def test_programs_get_every_column_of_every_row(reelabel, classified_manifest):
    facts = json.loads(reelabel("job", "colour", "--format", "json").stdout)

    assert facts["question"].startswith("Which colour")
    assert [choice for choice, _ in facts["choices"]] == ["red", "blue"]
    assert facts["frames"][0]["times_s"][0] == 0.0
    [outcome], [earlier] = facts["outcomes"], facts["history"]
    assert outcome["label"] in {"red", "blue"}
    assert outcome["probabilities"] == [probability for _, probability in facts["choices"]]
    assert earlier["replaced_by"] == outcome["run_id"] != earlier["run_id"]
    assert outcome["manifest_uri"] == str(classified_manifest)


def test_the_outcome_is_shown_without_the_manifest(reelabel, classified_manifest):
    moved = classified_manifest.rename(classified_manifest.with_suffix(".moved"))
    try:
        shown = reelabel("job", "colour")
    finally:
        moved.rename(classified_manifest)

    assert shown.returncode == 0, shown.stderr
    assert "Questions and frames are unavailable: " in shown.stdout
    assert "Margin 0." in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nobody"], "There is no outcome of a job nobody; `reelabel results` lists those of a run."),
        (["colour", "--dataset", "other"], "Dataset other has no outcome of a job colour; "),
        (["colour", "--format", "csv"], "Unknown --format csv; use table or json."),
        (["colour", "--sheet", "x.doc"], "--sheet x.doc is not an image file; "),
    ],
)
@pytest.mark.usefixtures("classified_manifest")
def test_what_cannot_be_shown_is_refused(reelabel, arguments, sentence):
    refused = reelabel("job", *arguments)

    assert (refused.returncode, sentence in refused.stderr) == (2, True), refused.stderr


def test_a_picture_is_sent_as_the_terminal_takes_it():
    png = bytes(range(256)) * 20
    data = base64.b64encode(png).decode()

    assert image_codes(png, {"TERM_PROGRAM": "iTerm.app"}) == f"\033]1337;File=inline=1;size=5120:{data}\a\n"
    kitty = image_codes(png, {"TERM": "xterm-kitty"})
    assert kitty.startswith("\033_Ga=T,f=100,m=1;")
    assert "".join(part.partition(";")[2] for part in kitty.strip().split("\033\\")) == data
    assert kitty.strip().split("\033\\")[-2].startswith("\033_Gm=0;")
    assert image_codes(png, {"TERM": "xterm-256color"}) == image_codes(
        png, {"TERM": "tmux", "TERM_PROGRAM": "iTerm.app"}
    )
    assert not image_codes(png, {"TERM": "xterm-256color"})
