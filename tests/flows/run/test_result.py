"""Prefect shows the text of a run as text, whatever its manifest is called and contains."""

from functools import partial

import pytest
from prefect.runtime import flow_run

from flows.run.artifacts import _plain
from flows.run.flow_run import name_of_current, name_of_worker, scheduled_run_name
from flows.run.result import completed_state
from flows.watch import watch_run_name
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
