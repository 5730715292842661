"""`reelabel manifest survey`, and `classify --dry-run`, which uses it."""

import json

import pytest

from infra.embedded import export
from tests.clips import make_clip
from tests.command_line import reelabel
from tests.flows.runs import environment_of
from tests.survey.conftest import write_manifest

__all__ = ["make_clip", "write_manifest"]


@pytest.fixture
def manifest(make_clip, write_manifest, tmp_path):
    one, many = make_clip("one.mp4", gop=300), make_clip("many.mp4", gop=6)
    return write_manifest(
        {"video_uri": str(one), "task": "motion"},
        {"video_uri": str(many), "task": "still"},
        {"video_uri": str(tmp_path / "gone.mp4"), "task": "still"},
    )


@pytest.fixture
def environment(services, tmp_path):
    return environment_of(services) | export(services) | {"COLUMNS": "80", "REELABEL_HOME": str(tmp_path / "home")}


def test_the_table_fits_in_80_columns_and_says_first_what_keyframes_show(environment, manifest, tmp_path):
    page = tmp_path / "survey.html"

    completed = reelabel(environment, "manifest", "survey", manifest, "--page", str(page))

    assert completed.returncode == 0, completed.stderr
    _, *lines = completed.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "All 3 clips were surveyed" in lines[0]
    assert "1 of 3 clips has one keyframe" in lines[1]
    assert "video_missing" in completed.stdout
    assert page.read_text().startswith("<!doctype html>")


def test_json_is_all_that_is_printed(environment, manifest):
    completed = reelabel(
        environment, "manifest", "survey", manifest, "--format", "json", "--sample", "2", "--sampler", "auto"
    )

    found = json.loads(completed.stdout)
    assert (found["clips"], found["seen"], found["sampling"]["sampler"]) == (3, 2, "auto")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--format", "xml"], "Unknown --format xml; use table or json."),
        (["--page", "gone/x.html"], "Cannot write gone/x.html"),
    ],
)
def test_a_wrong_option_is_one_sentence(environment, manifest, options, sentence):
    completed = reelabel(environment, "manifest", "survey", manifest, *options)

    assert completed.returncode == 2
    assert sentence in completed.stderr


def test_a_dry_run_says_what_it_would_answer_and_what_cannot_be_used(environment, manifest):
    completed = reelabel(environment, "classify", manifest, "--dry-run", "--dataset", "planned")

    assert completed.returncode == 1, completed.stderr
    assert completed.stdout.startswith("Would answer 3 jobs on 3 videos of planned.\n")
    assert "1 of 3 clips has one keyframe" in completed.stdout
    assert f"To answer them: reelabel classify {manifest} --dataset planned" in completed.stdout
