"""`pip install reelabel` beside an installed vLLM: what it brings, and what it leaves as it is."""

import json
import os
import subprocess
import sys

import pytest

from reelabel_engine.environment import engine_environment
from reelabel_engine.protocol import EngineConfig
from tasks.model.identity import TINY_MODEL
from tests.reelabel.vllm.beside_vllm import packages_of_vllm, what_pip_would_install

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("loaders")]

_FIND = """
import json, sys
from importlib.util import find_spec

print(json.dumps([*filter(find_spec, sys.argv[1:])]))
"""
APPLICATION = ("flows", "tasks", "infra", "sql", "prefect", "sqlalchemy", "alembic", "psycopg", "boto3", "polars")


def test_the_loaders_bring_pyav_and_nothing_else(bare_vllm, wheel):
    assert what_pip_would_install(bare_vllm, wheel) == {"av"}


@pytest.mark.parametrize("extra", ["[web]", "[images]", "[arrow]", "[s3]", "[arrow,images,s3,web]"])
def test_no_extra_changes_a_package_of_vllm(bare_vllm, wheel, extra):
    assert not what_pip_would_install(bare_vllm, wheel, extra) & packages_of_vllm()


def test_nothing_of_the_application_can_be_imported_beside_the_loaders(vllm_python):
    command = [vllm_python, "-P", "-c", _FIND, "vllm", "reelabel", "pyarrow", *APPLICATION]

    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert found == ["vllm", "reelabel"]


def test_a_connector_whose_urllib3_is_too_old_says_so_at_the_start(vllm_python, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*pip, "urllib3==2.5.0"], check=True, timeout=300)
    environment = engine_environment(EngineConfig(model=str(TINY_MODEL)))
    environment |= {
        "VLLM_MEDIA_CONNECTOR": "reelabel",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]]),
    }
    command = [vllm_python, "-P", "-c", "from vllm.plugins import load_general_plugins as load; load()"]

    completed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)

    assert (
        "The media connector reelabel needs a package that is not installed (a newer urllib3): "
        f"`{vllm_python} -m pip install 'urllib3<3,>=2.8'`. Until then, vLLM reads videos whole."
    ) in completed.stdout + completed.stderr
