"""Tests of what imports PyTorch or transformers, `in_engine_*.py`: the engine's Python runs them."""

import os
from pathlib import Path

import pytest

from tests.engine_python import ROOT, link_beside_engine, run_by_engine

FILES = sorted(str(path.relative_to(ROOT)) for path in Path(__file__).parent.rglob("in_engine_*.py"))


@pytest.fixture(scope="module")
def own_pytest(tmp_path_factory):
    return link_beside_engine(["pytest"], tmp_path_factory.mktemp("beside") / "packages")


@pytest.mark.system
@pytest.mark.parametrize("file", FILES)
def test_the_tests_of_a_file_pass_in_the_engines_python(own_pytest, file):
    options = ("-q", "-c", os.devnull, "--rootdir", ROOT, "--noconftest", "-p", "no:cacheprovider")
    command = ("-m", "pytest", *options, "--import-mode=importlib", file)

    completed = run_by_engine(*command, beside=[own_pytest], cwd=ROOT, capture_output=True, text=True, check=False)

    assert completed.returncode == 0, completed.stdout + completed.stderr
