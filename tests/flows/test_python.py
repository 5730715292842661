"""Runs that Python starts, and their rows: each call runs the command in a process of its own."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

import reelabel_app
from infra.embedded.home import Home
from infra.errors import ManifestError, RunFailedError
from reelabel.errors import ConfigurationError
from tasks.manifest.rejects import shorten_list
from tests.clips import write_clip
from tests.wait import until


@pytest.fixture
def kernel(served):
    """This process has the settings that a notebook's kernel would have."""
    with patch.dict(os.environ, served, clear=True):
        yield


@pytest.fixture
def jobs(tmp_path):
    clips = [str(write_clip(tmp_path / f"{name}.mp4", frames=3)) for name in "abc"]
    return pl.DataFrame(
        {"job_id": ["a", "b", "c"], "video_uri": clips, "prompt": "Which colour?", "choices": [["red", "blue"]] * 3}
    )


@pytest.mark.system
@pytest.mark.usefixtures("kernel")
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


@pytest.mark.system
@pytest.mark.usefixtures("kernel")
def test_a_folder_and_a_file_are_answered(jobs, tmp_path):
    jobs.write_parquet(tmp_path / "jobs.parquet")

    from_folder = reelabel_app.classify(tmp_path, prompt="Is it red?", choices=["yes, it is", "no|never"])
    listed = reelabel_app.classify(tmp_path / "jobs.parquet", settings={"sampling.num_frames": 2})

    assert set(from_folder.rows()["label"]) <= {"yes, it is", "no|never"}
    assert from_folder.rows().height == listed.rows().height == 3


@pytest.mark.system
@pytest.mark.usefixtures("kernel")
def test_without_choices_rows_have_words_or_json(jobs, tmp_path, own_environment):
    schema = json.dumps({"type": "object", "properties": {"red": {"type": "boolean"}}, "required": ["red"]})
    facts = jobs.drop("choices").with_columns(schema=pl.lit(schema))

    with patch.dict(os.environ, own_environment | {"REELABEL_MODEL_KEEP_WARM_S": "60"}, clear=True):  # a real engine
        in_words = reelabel_app.classify(tmp_path, prompt="What is it?", max_tokens=8)
        in_json = reelabel_app.classify(facts, dataset="facts", max_tokens=64)
        words, data = in_words.rows(), in_json.rows()

    assert (in_words.ok, in_json.ok) == (True, True)
    assert (words["text"].null_count(), words["label"].null_count()) == (0, 3)
    assert [type(json.loads(each)["red"]) for each in data["data"]] == [bool] * 3


@pytest.mark.system
@pytest.mark.usefixtures("kernel")
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


@pytest.mark.system
@pytest.mark.usefixtures("kernel")
def test_wrong_use_is_one_sentence(jobs):
    reelabel_app.classify(jobs, dataset="base")
    wrong = {
        "No such option: --number": lambda: reelabel_app.classify(jobs, dataset="x", number=3),
        "prompt": lambda: reelabel_app.classify(jobs.drop("prompt"), dataset="x"),
        "No runs match 'ffffffff'": lambda: reelabel_app.results("ffffffff"),
        "nobody": lambda: reelabel_app.backfill(["nobody"]),
    }
    for message, call in wrong.items():
        with pytest.raises(ConfigurationError, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)


@pytest.mark.system
@pytest.mark.usefixtures("kernel")
def test_an_interrupt_ends_the_run_in_order(jobs, tmp_path, monkeypatch):
    jobs.write_parquet(tmp_path / "jobs.parquet")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    script = f"import reelabel_app; reelabel_app.classify({str(tmp_path / 'jobs.parquet')!r}, dataset='stopped')"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) as kernel:
        until(lambda: [*(tmp_path / "temporary").glob("reelabel-*/id")])  # the run begins
        kernel.send_signal(signal.SIGINT)
        _, stderr = kernel.communicate(timeout=60)

    assert re.search(r"Stopped.* the same command again to continue\.", stderr)
    assert stderr.rstrip().endswith("KeyboardInterrupt")


def test_what_a_setting_may_turn_on_is_turned_off_by_false():
    words = reelabel_app._words({"num_frames": 4, "fps": False, "min_coverage": False, "frame_recovery": False})

    assert [*words] == ["--num-frames", "4", "--no-frame-recovery"]


@pytest.mark.parametrize(
    ("source", "dataset", "message"),
    [
        (pl.DataFrame({"job_id": ["a"]}), None, "A DataFrame needs a name: pass dataset"),
        (pl.DataFrame({"job_id": ["a"]}), "../up", "'../up' cannot name a DataFrame's manifest"),
        (7, "seven", "int is no table of jobs"),
        (pl.DataFrame({"job_id": [object()]}), "objects", "DataFrame is no table of jobs"),
        (pl.LazyFrame({"job_id": ["a"]}).select("id"), "lazy", "LazyFrame is no table of jobs"),
    ],
)
def test_an_invalid_manifest_is_refused_before_a_run_begins(source, dataset, message):
    for start in (reelabel_app.classify, reelabel_app.describe):
        with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}"):
            start(source, dataset=dataset)


@pytest.mark.parametrize("as_source", [pl.DataFrame.lazy, pl.DataFrame.to_pandas, pl.DataFrame.to_arrow])
def test_a_table_becomes_a_manifest_that_replaces_the_earlier_one(as_source, tmp_path, monkeypatch):
    monkeypatch.setenv("REELABEL_HOME", str(tmp_path / "home"))
    jobs = pl.DataFrame({"job_id": ["a", "b"]})

    paths = [reelabel_app._manifest(as_source(jobs[:count]), "some-jobs") for count in (1, 2)]

    assert paths == [str(tmp_path / "home/manifests/some-jobs.parquet")] * 2
    assert pl.read_parquet(paths[1]).equals(jobs)
    assert [path.name for path in (tmp_path / "home/manifests").iterdir()] == ["some-jobs.parquet"]
    assert (tmp_path / "home/manifests").stat().st_mode & 0o777 == 0o700


def test_the_home_folder_that_a_table_creates_is_private_whatever_the_umask(tmp_path, monkeypatch):
    monkeypatch.setenv("REELABEL_HOME", str(tmp_path / "home"))
    before = os.umask(0o002)
    try:
        reelabel_app._manifest(pl.DataFrame({"job_id": ["a"]}), "some-jobs")
    finally:
        os.umask(before)

    Home(tmp_path / "home").require_private()


def test_the_table_for_a_home_folder_that_cannot_be_created_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("REELABEL_HOME", str(tmp_path / "file" / "home"))

    with pytest.raises(ConfigurationError, match=r"cannot be created or used \(Not a directory\); set REELABEL_HOME"):
        reelabel_app._manifest(pl.DataFrame({"job_id": ["a"]}), "some-jobs")


def test_a_table_may_be_written_by_two_kernels_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("REELABEL_HOME", str(tmp_path / "home"))
    jobs = pl.DataFrame({"job_id": ["a", "b"]})

    with ThreadPoolExecutor(8) as kernels:
        paths = {*kernels.map(lambda _: reelabel_app._manifest(jobs, "shared"), range(100))}

    assert [pl.read_parquet(path).equals(jobs) for path in paths] == [True]


def test_a_text_in_place_of_a_list_is_not_taken_apart(tmp_path, monkeypatch):
    commands = []

    def keep(command):
        named = command[command.index("--ids-file") + 1] if "--ids-file" in command else None
        commands.append((command, named and Path(named).read_text()))
        return 2, ""

    monkeypatch.setattr(reelabel_app, "_follow", keep)
    for start in (
        lambda: reelabel_app.classify(tmp_path, prompt="Is it red?", choices="yes|no"),
        lambda: reelabel_app.classify(tmp_path, prompt="Is it red?", choices=("yes", "no")),
        lambda: reelabel_app.backfill("clip-7"),
    ):
        with pytest.raises(ConfigurationError):
            start()

    (text, _), (listed, _), (_, ids) = commands
    assert [each[each.index("--choices") + 1] for each in (text, listed)] == ["yes|no", '["yes", "no"]']
    assert ids == "clip-7\n"


def test_numbers_of_numpy_and_paths_are_options_and_settings(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(reelabel_app, "_follow", lambda command: commands.append(command) or (2, ""))
    settings = {"sampling.num_frames": np.int64(8), "store.uri": tmp_path, "extract.allow_roots": None, "a.b": ["c"]}

    with pytest.raises(ConfigurationError):
        reelabel_app.backfill(margin_below=np.float64(0.1), limit=np.int64(0), settings=settings)

    [command] = commands
    assert [command[command.index(name) + 1] for name in ("--margin-below", "--limit")] == ["0.1", "0"]
    assert [word for before, word in pairwise(command) if before == "--set"] == [
        "sampling.num_frames=8",
        f"store.uri={tmp_path}",
        "extract.allow_roots=null",
        'a.b=["c"]',
    ]


def follow(script):
    return reelabel_app._follow([sys.executable, "-S", "-E", "-c", script])


def test_what_a_command_prints_is_printed_and_its_last_errors_are_kept(capsys):
    code, kept = follow("import sys; print('out'); [print(n, file=sys.stderr) for n in range(60)]; sys.exit(3)")

    assert code == 3
    assert kept.split() == [str(number) for number in range(10, 60)]
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.split())) == ("out\n", 60)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_command_is_read_to_its_end_whatever_it_prints_and_wherever_that_goes(is_closed, monkeypatch):
    errors = io.StringIO()
    if is_closed:
        errors.close()
    monkeypatch.setattr(sys, "stderr", errors)

    code, kept = follow(r"import os; os.write(2, b'\xff\n' + b'a line\n' * 100_000 + b'the end'); os._exit(3)")

    assert (code, kept.splitlines()[-1]) == (3, "the end")
    assert is_closed or errors.getvalue().startswith("\ufffd\na line\n")


def test_an_error_that_lists_many_faults_begins_with_the_name_of_the_manifest():
    faults = shorten_list([f"Fault {number}." for number in range(99)])
    message = f"manifest_invalid: {ManifestError('jobs.parquet is not a valid manifest:', faults)}"

    code, printed = follow(f"import sys; print({message!r}, file=sys.stderr); sys.exit(2)")

    assert str(reelabel_app._error(code, printed)).startswith("jobs.parquet is not a valid manifest: - Fault 0.")


@pytest.mark.parametrize("end", ["sys.exit(130)", "os.kill(os.getpid(), signal.SIGINT)"])
def test_a_command_that_was_interrupted_raises_as_an_interrupt_does(end):
    with pytest.raises(KeyboardInterrupt):
        follow(f"import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); {end}")


def test_a_command_of_ours_gets_no_interrupt_of_the_terminal_and_no_input():
    script = "import os, sys; sys.exit(0 if os.getpgid(0) == os.getpid() and sys.stdin.read() == '' else 1)"

    assert follow(script) == (0, "")


@pytest.mark.parametrize(
    ("code", "printed", "kind", "message"),
    [
        (2, "12:00 a line\nconfiguration: Set the\n  model.\n", ConfigurationError, "Set the model."),
        (1, "manifest: First.\nrun_failed: The last: one.\n", RunFailedError, "The last: one."),
        (
            2,
            "Usage: reelabel\nTry 'reelabel --help' for help.\n╭─ Error ──╮\n│ No such option: --x │\n╰──╯\n",
            ConfigurationError,
            "No such option: --x",
        ),
        (-9, "", RunFailedError, "The command ended with exit code -9."),
    ],
)
def test_the_error_of_a_command_is_one_sentence(code, printed, kind, message):
    error = reelabel_app._error(code, printed)

    assert (type(error), str(error)) == (kind, message)
