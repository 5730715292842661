"""Runs that Python starts, and their rows: each call runs the command in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
from unittest.mock import patch

import polars as pl
import pytest

import reelabel_app
from reelabel.errors import ConfigurationError
from tests.clips import write_clip
from tests.wait import until

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def _settings(served):
    """The process has the settings that a notebook's kernel would have."""
    with patch.dict(os.environ, served, clear=True):
        yield


@pytest.fixture
def jobs(tmp_path):
    clips = [str(write_clip(tmp_path / f"{name}.mp4", frames=3)) for name in "abc"]
    return pl.DataFrame(
        {"job_id": ["a", "b", "c"], "video_uri": clips, "prompt": "Which colour?", "choices": [["red", "blue"]] * 3}
    )


def test_a_data_frame_is_answered_and_a_longer_one_continues(jobs, capsys):
    first = reelabel_app.classify(jobs[:2], dataset="frame", num_frames=2)
    before = first.rows()
    again = reelabel_app.classify(jobs.to_pandas(), dataset="frame", num_frames=2)

    assert (first.ok, again.ok) == (True, True)
    assert before["job_id"].to_list() == ["a", "b"]
    rows = again.rows()
    assert rows["job_id"].to_list() == ["a", "b", "c"]
    assert set(rows["label"]) <= {"red", "blue"}
    assert rows.filter(pl.col("job_id") == "a").equals(before.filter(pl.col("job_id") == "a"))
    assert reelabel_app.results(again.id[:8]).equals(rows)
    printed = capsys.readouterr().out
    assert "3 (2 already finished)" in printed
    assert "Reconciled: 3 jobs = 3 labels + 0 failures." in printed


def test_a_folder_and_a_file_are_answered(jobs, tmp_path):
    jobs.write_parquet(tmp_path / "jobs.parquet")

    asked = reelabel_app.classify(tmp_path, prompt="Is it red?", choices=["yes, it is", "no|never"])
    listed = reelabel_app.classify(tmp_path / "jobs.parquet", settings={"sampling.num_frames": 2})

    assert set(asked.rows()["label"]) <= {"yes, it is", "no|never"}
    assert asked.rows().height == listed.rows().height == 3


def test_without_choices_rows_have_words_or_json(jobs, tmp_path, own_environment):
    schema = json.dumps({"type": "object", "properties": {"red": {"type": "boolean"}}, "required": ["red"]})
    facts = jobs.drop("choices").with_columns(schema=pl.lit(schema))

    with patch.dict(os.environ, own_environment | {"REELABEL_MODEL_KEEP_WARM_S": "60"}, clear=True):  # a real engine
        said = reelabel_app.classify(tmp_path, prompt="What is it?", max_tokens=8)
        told = reelabel_app.classify(facts, dataset="facts", max_tokens=64)
        words, data = said.rows(), told.rows()

    assert (said.ok, told.ok) == (True, True)
    assert (words["text"].null_count(), words["label"].null_count()) == (0, 3)
    assert [type(json.loads(each)["red"]) for each in data["data"]] == [bool] * 3


def test_failures_are_rows_and_are_run_again_by_id(jobs, tmp_path):
    gone = jobs.with_columns(
        video_uri=pl.when(pl.col("job_id") == "b").then(pl.lit(str(tmp_path / "late.mp4"))).otherwise("video_uri")
    )
    run = reelabel_app.classify(gone, dataset="late")
    before = run.rows()
    (tmp_path / "late.mp4").write_bytes((tmp_path / "b.mp4").read_bytes())
    mended = reelabel_app.backfill(["b"], run=run.id)

    assert not run.ok
    assert before.filter(pl.col("label").is_null())["job_id"].to_list() == ["b"]
    assert mended.ok
    assert mended.rows()["label"].null_count() == 0


def test_wrong_use_is_one_sentence(jobs):
    reelabel_app.classify(jobs, dataset="base")
    wrong = {
        "A DataFrame needs a name": lambda: reelabel_app.classify(jobs),
        "'../up' cannot name a DataFrame's manifest": lambda: reelabel_app.classify(jobs, dataset="../up"),
        "int is no table of jobs": lambda: reelabel_app.classify(7, dataset="seven"),
        "No such option: --number": lambda: reelabel_app.classify(jobs, dataset="x", number=3),
        "prompt": lambda: reelabel_app.classify(jobs.drop("prompt"), dataset="x"),
        "No runs match 'ffffffff'": lambda: reelabel_app.results("ffffffff"),
        "nobody": lambda: reelabel_app.backfill(["nobody"]),
    }
    for message, call in wrong.items():
        with pytest.raises(ConfigurationError, match=message) as refused:
            call()
        assert "\n" not in str(refused.value)


def test_an_interrupt_ends_the_run_in_order(jobs, tmp_path, monkeypatch):
    jobs.write_parquet(tmp_path / "jobs.parquet")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    script = f"import reelabel_app; reelabel_app.classify({str(tmp_path / 'jobs.parquet')!r}, dataset='stopped')"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) as kernel:
        until(lambda: [*(tmp_path / "temporary").glob("reelabel-*/id")])  # the run begins
        kernel.send_signal(signal.SIGINT)
        _, said = kernel.communicate(timeout=60)

    assert re.search(r"Stopped.* the same command again to continue\.", said)
    assert said.rstrip().endswith("KeyboardInterrupt")


def test_what_a_setting_may_turn_on_is_turned_off_by_false():
    words = reelabel_app._words({"num_frames": 4, "fps": False, "min_coverage": False, "frame_recovery": False})

    assert [*words] == ["--num-frames", "4", "--no-frame-recovery"]
