import json

import pytest
from typer.testing import CliRunner

from benchmarks.fuzz import bases_like, make_mutants, run
from flows.cli import app

pytestmark = pytest.mark.xdist_group("fuzz")

MUTANTS = 300


@pytest.fixture(scope="module")
def report():
    return run(MUTANTS, seed=20)


def test_damaged_files_never_give_frames_that_a_linear_decode_does_not(report):
    assert [(fault.mutant.number, fault.mutant.base.name, fault.verdict, fault.detail) for fault in report.faults] == []
    assert len(report.outcomes) == MUTANTS


def test_nine_in_ten_of_the_damaged_files_that_can_be_decoded_give_frames(report):
    assert report.share >= 0.9


def test_few_files_have_no_linear_decode_to_hold_to(report):
    undecided = [outcome for outcome in report.outcomes if outcome.verdict.name == "UNDECIDED"]

    assert len(undecided) < MUTANTS / 20


def test_the_command_prints_its_counts():
    result = CliRunner().invoke(app, ["bench", "fuzz", "--count", "24", "--seed", "1", "--json"])

    facts = json.loads(result.stdout)
    assert sum(facts["verdicts"].values()) == 24
    assert result.exit_code == (1 if facts["faults"] else 0)


def test_the_command_damages_files_of_one_kind_on_request():
    mutants = make_mutants(range(4), 1, bases_like("avi/m"))

    assert {mutant.base.container for mutant in mutants} == {"avi"}


def test_the_command_refuses_a_kind_that_is_not_there():
    result = CliRunner().invoke(app, ["bench", "fuzz", "--only", "betamax"])

    assert result.exit_code == 2
    assert "betamax" in result.stderr
