"""`reelabel classify` of videos without a manifest: one question about a folder, a glob or a file."""

import json
import os
import re

import pytest
from sqlalchemy import select

from flows.cli.runs.classify import _listed
from tasks.database.tables import FAILURE, RESULT
from tasks.manifest.cells import parse_list
from tests.clips import write_clip
from tests.command_line import reelabel as run_command

QUESTION = ("--prompt", "Which colour?", "--choices", "red|blue")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "holiday clips"
    (folder / "day 2").mkdir(parents=True)
    for name in ("a.mp4", "day 2/b.MP4"):
        write_clip(folder / name.lower(), frames=3).rename(folder / name)
    return folder


def outcomes(engine, table, **wanted):
    """What the rows of a table say of each job of a dataset that contains a word."""
    [(column, word)] = wanted.items()
    query = select(table.c.job_id, table.c[column]).where(table.c.dataset.contains(word)).order_by(table.c.job_id)
    with engine.connect() as connection:
        return dict(connection.execute(query).all())


def test_new_files_of_a_folder_are_answered_and_no_video_twice(reelabel, folder, engine):
    (folder / "notes.txt").write_text("none")
    (folder / "._a.mp4").write_bytes(b"attributes")
    (folder / "up").symlink_to(folder)
    (folder / "gone.mp4").symlink_to(folder / "nowhere.mp4")

    first = reelabel("classify", str(folder), *QUESTION)
    (folder / "c.mp4").write_bytes((folder / "a.mp4").read_bytes())
    second = reelabel("classify", f"{folder}/", *QUESTION)

    assert first.returncode == 0, first.stderr + first.stdout
    assert "Left out 2 files, hidden or without the suffix of a video (first: ._a.mp4)." in first.stdout
    manifest = re.search(
        r"The manifest of 2 videos: (s3://\S+/questions/holiday-clips-[0-9a-f]{12}\.parquet)", first.stdout
    )
    assert manifest, first.stdout
    assert f"The manifest of 3 videos: {manifest[1]}" in second.stdout
    assert "3 (2 already finished)" in second.stdout
    labels = outcomes(engine, RESULT, run_id="holiday-clips")
    assert [*labels] == ["a.mp4", "c.mp4", "day 2/b.MP4"]
    assert labels["a.mp4"] == labels["day 2/b.MP4"] != labels["c.mp4"]


def test_a_dry_run_names_the_command_that_answers(reelabel, folder):
    options = ("--prompt", "Is it 'red'?", "--choices", "yes|no")

    shown = reelabel("classify", str(folder), *options, "--dry-run")

    assert shown.returncode == 0, shown.stderr + shown.stdout
    assert "Would answer 2 jobs on 2 videos of holiday-clips-" in shown.stdout
    assert shown.stdout.splitlines()[-1] == (
        f"To answer them: reelabel classify '{folder}' --prompt 'Is it '\"'\"'red'\"'\"'?' --choices 'yes|no'"
    )


def test_a_file_that_is_no_video_costs_itself_alone(reelabel, folder, engine):
    (folder / "broken.mp4").write_text("no video")
    (folder / "empty.mov").touch()
    os.close(os.open(os.fsencode(folder) + b"/caf\xe9.mp4", os.O_CREAT))

    completed = reelabel("classify", str(folder), "--prompt", "Which, now?", "--choices", "red|blue")

    assert completed.returncode == 1, completed.stderr + completed.stdout
    assert "Left out 1 video (first: caf<U+DCE9>.mp4): the name is not UTF-8; rename it." in completed.stdout
    assert [*outcomes(engine, FAILURE, code="holiday-clips")] == ["broken.mp4", "empty.mov"]


def test_a_name_that_cannot_be_used_fails_the_command_alone(reelabel, folder):
    os.close(os.open(os.fsencode(folder) + b"/caf\xe9.mp4", os.O_CREAT))

    dry = reelabel("classify", f"{folder}/*.mp4", *QUESTION, "--dry-run")
    completed = reelabel("classify", f"{folder}/*.mp4", *QUESTION)

    assert "Would answer 1 job on 1 video of holiday-clips-" in dry.stdout, dry.stderr
    assert "answered in this run" in completed.stdout, completed.stderr
    assert (dry.returncode, completed.returncode) == (1, 1)


@pytest.mark.parametrize("source", ["a.mp4", "day */*.MP4"])
def test_one_video_and_a_glob_are_sources_too(reelabel, folder, source):
    completed = reelabel("classify", f"{folder}/{source}", "--prompt", f"Of {source}?", "--choices", '["red", "a|b"]')

    assert completed.returncode == 0, completed.stderr + completed.stdout
    assert "The manifest of 1 video: " in completed.stdout


def test_videos_on_s3_are_a_source_too(reelabel, folder, own_services, objects):
    prefix = f"{own_services.store.uri}/prefix-of-clips"
    objects.replace(f"{prefix}/deep/a.mp4", (folder / "a.mp4").read_bytes())

    completed = reelabel("classify", f"{prefix}/", *QUESTION)

    assert completed.returncode == 0, completed.stderr + completed.stdout
    assert "The manifest of 1 video: " in completed.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["FOLDER"], "FOLDER is a folder, not a manifest; to ask about its videos, add a question, such as --prompt"),
        (["FOLDER/a.mp4"], "FOLDER/a.mp4 names a video, not a manifest; "),
        (["FOLDER/*.mp4"], "FOLDER/*.mp4 names videos, not a manifest; "),
        (["s3://bucket/videos/"], "s3://bucket/videos/ is a prefix, not a manifest; "),
        (["FOLDER", "--choices", "a|b"], "--choices needs a question, such as --prompt"),
        (["FOLDER", "--prompt", " ", "--choices", "a|b"], "The question cannot be asked: prompt is empty."),
        (
            ["FOLDER", "--prompt", "?", "--choices", "a"],
            "The question cannot be asked: choices has fewer than two answers.",
        ),
        (["FOLDER", "--prompt", "?", "--choices", "[a"], "--choices '[a' is not a JSON list."),
        (["FOLDER/jobs.parquet", *QUESTION], "FOLDER/jobs.parquet has questions of its own; leave out --prompt"),
        (["data:video/mp4;base64,AAAA", *QUESTION], "Videos in data: are asked about by a manifest; save this one"),
        ([], "No manifest given; use a Parquet file or a glob, or --prompt and a folder of videos."),
        ([*QUESTION], "No videos given; name a folder, a glob in quotes, or one video."),
        (["FOLDER/day 2/none", *QUESTION], "There is no video below FOLDER/day 2/none; check the path."),
        (["FOLDER/*.mkv", *QUESTION], "No file matches FOLDER/*.mkv."),
        (["ftp://host/a.mp4", *QUESTION], "ftp://"),
        (["--session", "last", *QUESTION], "--session takes no manifest, no videos, no --dry-run and no --keep-going."),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
def test_videos_without_a_question_and_questions_without_videos_are_refused(
    own_environment, folder, arguments, sentence, dry
):
    home = {"REELABEL_HOME": str(folder / "home"), "REELABEL_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}
    arguments = [word.replace("FOLDER", str(folder)) for word in arguments]

    completed = run_command(own_environment | home, "classify", *arguments, *dry)

    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert sentence.replace("FOLDER", str(folder)) in completed.stderr
    assert not (folder / "home").exists()


@pytest.mark.parametrize("choices", [(), ("yes", "no"), ("a|b", "c"), ("[a", "b"), ("[none]", "some"), (" a", "b ")])
def test_the_command_that_a_dry_run_names_asks_with_the_same_choices(choices):
    listed = _listed(choices)

    assert listed == ("" if not choices else "yes|no" if choices == ("yes", "no") else json.dumps(choices))
    assert not choices or tuple(parse_list(listed, "--choices")) == choices
