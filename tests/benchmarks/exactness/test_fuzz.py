import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.exactness.fuzz import Outcome, fuzz_extraction, make_mutants
from benchmarks.media.matrix import cells_like

MUTANTS = 200


@pytest.fixture(scope="module")
def report():
    return fuzz_extraction(MUTANTS, seed=20)


def test_a_damaged_file_never_yields_a_frame_that_a_linear_decode_does_not(report):
    assert [(fault.mutant.number, fault.mutant.base.name, fault.outcome, fault.detail) for fault in report.faults] == []
    assert len(report.results) == MUTANTS


def test_nine_in_ten_decodable_damaged_files_yield_frames(report):
    assert report.share >= 0.9


def test_few_files_have_no_linear_decode_to_compare_with(report):
    assert report.outcomes[Outcome.UNDECIDED] < MUTANTS / 20


def test_the_command_prints_its_counts():
    result = CliRunner().invoke(app, ["fuzz", "--count", "6", "--seed", "1", "--json"])

    report = json.loads(result.stdout)
    assert sum(row["mutants"] for row in report["tables"][0]["rows"]) == 6
    assert result.exit_code == (0 if all(target["is_met"] for target in report["targets"]) else 1)


def test_the_command_can_damage_files_of_one_kind_only():
    mutants = make_mutants(range(4), 1, cells_like("avi/m"))

    assert {mutant.base.container for mutant in mutants} == {"avi"}


def test_the_command_refuses_an_unknown_kind():
    result = CliRunner().invoke(app, ["fuzz", "--only", "betamax"])

    assert result.exit_code == 2
    assert "betamax" in result.stderr
