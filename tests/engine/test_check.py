"""What is used of vLLM, by name and by argument, and what is said of a vLLM that lacks it."""

import pytest

from reelabel_engine import check
from tests.engine_python import run_by_engine


def test_what_is_missing_or_takes_other_arguments_is_listed(monkeypatch):
    monkeypatch.setattr(check, "_imports", lambda: [("json", "loads"), ("json", "gone"), ("nowhere", "at_all")])
    monkeypatch.setattr(check, "_CALLS", {"json:dumps": ("obj",), "ast:parse": ("source", "fast"), "ast:gone": ()})

    monkeypatch.setattr(check, "_ATTRIBUTES", ("json:JSONDecoder.strict", "json:JSONDecoder.gone", "json:Gone.a"))

    missing, changed, unset = [*check._missing_names()], [*check._changed_calls()], [*check._missing_attributes()]

    assert [each.partition(":")[0] for each in missing] == ["json.gone", "nowhere.at_all"]
    assert changed[0].startswith("ast:parse takes no fast: source, ")
    assert changed[1].startswith("ast:gone: ")
    assert unset[0] == "json:JSONDecoder.gone is not set"
    assert unset[1].startswith("json:Gone.a: ")


def test_names_of_other_packages_are_not_counted():
    assert {module.partition(".")[0] for module, _ in check._imports()} == {"vllm"}


@pytest.mark.system
def test_the_installed_vllm_has_all_that_the_engine_uses():
    found = run_by_engine("-P", "-m", "reelabel_engine.check", capture_output=True, text=True, timeout=300, check=False)

    assert found.returncode == 0, found.stdout
    assert ", 0 missing or changed" in found.stdout
