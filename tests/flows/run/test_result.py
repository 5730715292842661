"""Prefect shows the text of a run as text, whatever its manifest is called and contains."""

from dataclasses import replace
from functools import partial

import pytest
from prefect.runtime import flow_run

from flows.run.artifacts import _plain
from flows.run.flow_run import name_of_current, name_of_worker, scheduled_run_name
from flows.run.result import RunResult, completed_state
from flows.watch import watch_run_name
from tasks.results.audit import AuditReport
from tests.hostile import HOSTILE, SHOWN, hidden_in


def test_a_state_message_shows_invisible_characters():
    state = completed_state(f"Reconciled.\n{HOSTILE}")

    assert hidden_in(state.message) == []
    assert state.message.startswith("Reconciled.\na␛[2J<U+202E>")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        pytest.param(
            partial(scheduled_run_name, "classify"), {"manifest": "a.parquet", "dataset": HOSTILE}, id="classify"
        ),
        pytest.param(
            partial(name_of_current, "backfill"), {"manifest": "a.parquet", "dataset": HOSTILE}, id="backfill"
        ),
        pytest.param(watch_run_name, {"manifests": HOSTILE}, id="watch"),
        pytest.param(partial(name_of_worker, "extract"), {"plan": HOSTILE}, id="extract"),
    ],
)
def test_the_name_of_a_run_is_one_line_without_invisible_characters(monkeypatch, name, parameters):
    monkeypatch.setitem(flow_run.FIELDS, "parameters", lambda: parameters)

    assert f" {SHOWN}" in name()
    assert hidden_in(name()) == []


def test_a_name_in_markdown_never_becomes_a_link_image_or_html():
    assert _plain("![x](//host/a.png) <b>*a*_b_`c`") == r"\!\[x\]\(//host/a.png\) \<b\>\*a\*\_b\_\`c\`"
    assert hidden_in(_plain(HOSTILE)) == []


RECONCILED = AuditReport(
    jobs=2, labels=2, failures=0, missing=0, doubled=0, stale=0, repeated=0, orphaned=0, codes={}, examples=()
)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ({"answered": 1, "chosen": 2}, ""),
        ({"answered": 0}, "Nothing to do. "),
        ({"answered": 0, "chosen": 0}, "Nothing to do: no job matches the selection. "),
        (
            {"answered": 0, "chosen": 1},
            "Nothing to do: 1 chosen job has a valid label; turn on force to ask it again. ",
        ),
        (
            {"answered": 0, "chosen": 2},
            "Nothing to do: 2 chosen jobs have a valid label; turn on force to ask them again. ",
        ),
        (
            {"answered": 0, "chosen": 2, "report": replace(RECONCILED, describes=True)},
            "Nothing to do: 2 chosen jobs have a valid description; turn on force to describe them again. ",
        ),
    ],
)
def test_a_run_that_had_nothing_to_do_says_why(result, sentence):
    found = RunResult(**{"report": RECONCILED} | result)

    assert str(found) == f"{sentence}{found.report}"


def test_the_notes_of_a_backfill_follow_its_result():
    assert str(RunResult(answered=2, report=RECONCILED, notes=("One.", "Two."))).endswith(" One. Two.")
