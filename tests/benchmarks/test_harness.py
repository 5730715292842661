import json
import shlex

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from benchmarks.__main__ import EXAMPLES, app
from benchmarks.harness import Column, Table, Target, paired, race, ratio, run_in_process, show

ROWS = [{"clip": "a", "ms": 1234.56, "other": 617.28}, {"clip": "b", "ms": 3.0}]
COLUMNS = (Column("clip", "clip"), Column("ms", "ms", ",.1f"), ratio("ms / other", "ms", "other"))


def test_help_lists_every_benchmark():
    shown = CliRunner().invoke(app, ["--help"])

    assert shown.exit_code == 0
    assert all(f"│ {command.__name__}" in shown.stdout for command in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES.values())
def test_the_example_of_a_benchmark_is_valid(example):
    name, *arguments = shlex.split(example)

    get_command(app).commands[name].make_context(name, arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["engine", "words", "--model", "big"],
        ["pipeline", "classify", "--model", "big"],
        ["pipeline", "gpu", "--model", "big"],
        ["live", "--model", "big"],
        ["serve", "--model", "big"],
        ["peers", "--questions", "8", "--model", "big"],
    ],
)
def test_a_model_that_a_benchmark_does_not_know_is_refused(arguments):
    refused = CliRunner().invoke(app, arguments)

    assert refused.exit_code == 2
    assert "--model" in refused.output


def test_a_table_is_markdown_whose_missing_figures_are_empty(capsys):
    show([Table("Clips", ROWS, COLUMNS, "A note.")])

    lines = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()]
    assert ["", "clip", "ms", "ms / other", ""] in lines
    assert ["", "a", "1,234.6", "2.00x", ""] in lines
    assert ["", "b", "3.0", "", ""] in lines
    assert ["A note."] in lines


def test_a_table_across_has_a_column_for_each_row(capsys):
    show([Table("Clips", ROWS, COLUMNS, across=True)])

    lines = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()]
    assert ["", "clip", "a", "b", ""] in lines
    assert ["", "ms", "1,234.6", "3.0", ""] in lines


def test_a_missed_target_is_named_and_fails(capsys):
    met, missed = Target("speed", 2, least=1.5), Target("memory", 3, most=2)

    assert show([], targets=[met]) == 0
    assert show([], targets=[met, missed], facts={"cores": "two", "failures": {}}) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "met     speed: 2 (at least 1.5)",
        "MISSED  memory: 3 (at most 2)",
        "cores: two",
    ]


def test_json_has_all_rows_targets_and_facts(capsys):
    code = show([Table("Clips", ROWS, COLUMNS)], targets=[Target("speed", 1, least=2)], facts={"x": 1}, as_json=True)

    report = json.loads(capsys.readouterr().out)
    assert code == 1
    assert report["tables"] == [{"title": "Clips", "rows": ROWS}]
    assert [target["is_met"] for target in report["targets"]] == [False]
    assert report["x"] == 1


def test_contenders_of_a_race_take_turns_after_a_warm_up():
    turns = []
    times = race({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, rounds=2)

    assert turns == ["a", "b"] * 3
    assert {name: len(each) for name, each in times.items()} == {"a": 2, "b": 2}


def test_a_paired_ratio_is_the_median_of_the_rounds():
    assert paired({"a": [2, 9, 8], "b": [1, 9, 2]}, "a", "b") == 2


def test_a_step_in_a_process_has_its_value_and_the_peak_of_its_memory():
    small, large = run_in_process(str.zfill, "1", 4), run_in_process(str.zfill, "1", 50_000_000)

    assert small.value == "0001"
    assert large.peak_bytes - small.peak_bytes > 49_000_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["peers", "--clips", "0,0,0"], "'0,0,0' has no clip"),
        (["pipeline", "gpu", "--sizes", "800x600"], "its width is none of 240, 320, 640, 1920"),
        (["pipeline", "gpu", "--sizes", "320"], "not a size such as 320x240"),
    ],
)
def test_what_nothing_can_be_measured_with_is_refused(arguments, words, tmp_path):
    refused = CliRunner().invoke(app, [*arguments, "--folder", str(tmp_path)])

    assert refused.exit_code == 2
    assert words in " ".join(refused.output.replace("│", " ").split())


def test_a_folder_without_videos_is_refused(tmp_path):
    refused = CliRunner().invoke(app, ["extract", "torchcodec", "--clips", str(tmp_path), "--folder", str(tmp_path)])

    assert refused.exit_code == 2
    assert "There are no videos in" in refused.output
