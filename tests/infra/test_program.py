"""Commands that are shown start the program as the user has started it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import prefect.engine
import pytest

from flows.cli import __main__
from flows.cli.options import choose
from flows.run.request import BackfillRequest, QuestionOptions
from infra import program as module
from infra.program import command, with_program_name
from infra.settings import NightlySettings, SamplingOptions
from tasks.results.selection import Selection

_SCRIPT = Path(sys.executable).with_name("reelabel")


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Start a program by what is typed, in a folder with two installations."""
    for folder in ("on path", "elsewhere"):
        script = tmp_path / folder / "reelabel"
        script.parent.mkdir()
        script.touch(mode=0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "on path"))
    return lambda typed: monkeypatch.setattr(module.sys, "argv", [typed])


@pytest.mark.parametrize(
    ("typed", "program"),
    [
        ("{folder}/on path/reelabel", "reelabel"),  # as the shell has found it
        ("elsewhere/reelabel", "elsewhere/reelabel"),
        ("{folder}/elsewhere/reelabel", "{folder}/elsewhere/reelabel"),
        (__main__.__file__, f"{sys.executable} -m flows.cli"),
        ("/usr/bin/other", "reelabel"),
        (prefect.engine.__file__, str(_SCRIPT)),  # a flow run of a worker, whose message is read by someone else
    ],
)
def test_a_command_names_the_program_as_it_was_started(start, tmp_path, typed, program):
    start(typed.format(folder=tmp_path))
    program = program.format(folder=tmp_path)

    assert command("results", "1a2b", calibrated=True) == f"{program} results 1a2b --calibrated"
    assert with_program_name("Start it by `reelabel up`.") == f"Start it by `{program} up`."


def test_a_command_without_the_path_is_found_by_its_name_alone_where_the_shell_finds_it(start, monkeypatch):
    start("elsewhere/reelabel")
    assert command("up") == "elsewhere/reelabel up"

    monkeypatch.setenv("PATH", "elsewhere")
    assert command("up") == "reelabel up"


def test_a_command_names_what_was_chosen_and_nothing_else(start):
    start("reelabel")
    chosen = QuestionOptions(sampling=SamplingOptions(num_frames=4, frame_recovery=False))

    assert command("classify", "m", overrides=chosen, force=False) == (
        "reelabel classify m --num-frames 4 --no-frame-recovery"
    )


def test_a_command_has_only_options_that_exist_and_keeps_those_set_to_nothing(start):
    start("reelabel")

    chosen = Selection(failed=False, missing=False, label="x", run="r")
    assert command("backfill", selection=chosen) == "reelabel backfill --label x --run r"
    nightly = NightlySettings(manifest="", may_be_empty=False)
    assert command("deploy", nightly=nightly) == "reelabel deploy --manifest '' --no-may-be-empty"


def test_a_list_is_one_value_a_tuple_several_and_nothing_is_left_out_but_what_is_empty(start):
    start("reelabel")
    options = {"where": ("a = 1", "b"), "ids": ["a", "b"], "top_k": 0, "given": {"fps": 2.5, "empty": ""}}

    assert command("manifest survey", "m", **options, code=None, names=[], raw=True) == (
        "reelabel manifest survey m --where 'a = 1' --where b --ids a,b --top-k 0 --fps 2.5 --raw"
    )


@pytest.mark.parametrize("ids", [["a,b", "c"], ['"a"', 'b"c'], ["a\nb"], ["a b", "c\u2028d"]])
def test_values_with_commas_and_quotes_are_read_as_they_were_written(start, ids):
    start("reelabel")

    *_, written = shlex.split(command("backfill", ids=ids))

    assert choose(BackfillRequest, {"manifest": "m", "ids": written}).ids == ids


@pytest.mark.system
def test_a_hint_works_when_it_is_pasted_into_the_shell_that_showed_it(tmp_path):
    link = tmp_path / "my tools" / "reelabel"
    link.parent.mkdir()
    link.symlink_to(_SCRIPT)
    environment = {"PATH": "/usr/bin:/bin", "REELABEL_HOME": str(tmp_path / "home"), "HOME": os.environ["HOME"]}

    def shell(line):
        completed = subprocess.run(
            ["/bin/sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return completed.stdout

    shown = shell("my\\ tools/reelabel status")
    [hint] = [line.partition("stopped services: ")[2] for line in shown.splitlines() if "stopped services: " in line]

    assert hint == "'my tools/reelabel' up"
    assert shell(hint.replace(" up", " --version")).startswith("reelabel ")
