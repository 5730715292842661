"""What `reelabel doctor` says of vLLM."""

import json

import pytest

from infra.settings import RunSettings, Settings
from reelabel_engine import PROTOCOL
from tasks.model.engine import vllm_backend
from tasks.model.engine.vllm_backend import VLLM
from tasks.model.identity import TINY_MODEL


@pytest.fixture
def look(tmp_path, monkeypatch):
    """Look at vLLM where it cannot be imported."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text('raise ImportError("no vLLM on this machine")\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(executor):
        checks = VLLM.diagnose(Settings(run=RunSettings(executor=executor)))
        return next(check for check in checks if check.name == "vllm")

    return run


def test_only_a_machine_whose_runs_need_an_engine_must_have_vllm(look):
    here, elsewhere = look("local"), look("remote")

    assert (here.ok, elsewhere.ok) == (False, True)
    assert here.detail == elsewhere.detail == "ImportError: no vLLM on this machine"
    assert here.advice.startswith("Install it again: `")
    assert elsewhere.advice == f"{here.advice} Only machines with infer workers need it."


def test_a_vllm_that_hangs_is_a_fault_of_its_own_check(tmp_path, monkeypatch):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(vllm_backend, "_TIMEOUT_S", 2)

    _, found = VLLM.diagnose(Settings())

    assert (found.ok, found.detail) == (False, "not imported within 2 s")


def test_vllm_for_gpus_without_one_says_what_to_check(tmp_path, monkeypatch):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("__version__ = '1'\n")
    (tmp_path / "vllm" / "platforms.py").write_text("class current_platform:\n    device_type = ''\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    model, found = VLLM.diagnose(Settings())  # nothing is said of settings, which would be those for a CPU

    assert (model.ok, found.ok) == (True, False)
    assert found.detail == "RuntimeError: Device string must not be empty"
    assert found.advice.startswith("No GPU can be used; check that nvidia-smi lists one")


def test_a_vllm_that_can_be_imported_is_named_with_its_python(tmp_path):
    python = tmp_path / "python"
    facts = json.dumps({"protocol": PROTOCOL, "versions": {"vllm": "0.32"}})
    python.write_text(f"#!/bin/sh\ncase $3 in reelabel_engine*) echo '{facts}';; *) printf '0.32 on torch 2';; esac\n")
    python.chmod(0o755)

    model, found = VLLM.diagnose(Settings(model={"python": python, "name": str(TINY_MODEL)}))

    assert (model.ok, model.detail) == (True, f"reelabel-tiny at {TINY_MODEL}")
    assert (found.ok, found.detail) == (True, f"0.32 on torch 2, in {python}")


def test_without_a_python_for_engines_the_sentence_says_what_to_do(tmp_path):
    _, found = VLLM.diagnose(Settings(model={"python": tmp_path / "gone"}))

    assert (found.ok, found.detail) == (False, "configuration")
    assert found.advice.endswith("correct model.python.")
