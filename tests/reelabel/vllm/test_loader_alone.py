"""`pip install reelabel` beside an installed vLLM: what it brings, and what it leaves as it is."""

import json
import subprocess

import pytest

from tests.reelabel.vllm.beside_vllm import packages_of_vllm, what_pip_would_install

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("loaders")]

APPLICATION = ("flows", "tasks", "infra", "sql", "prefect", "sqlalchemy", "alembic", "psycopg", "boto3", "polars")


def test_the_loaders_bring_pyav_and_nothing_else(bare_vllm, wheel):
    assert what_pip_would_install(bare_vllm, wheel) == {"av"}


@pytest.mark.parametrize("extra", ["[web]", "[images]", "[arrow]", "[s3]", "[arrow,images,s3,web]"])
def test_no_extra_changes_a_package_of_vllm(bare_vllm, wheel, extra):
    assert not what_pip_would_install(bare_vllm, wheel, extra) & packages_of_vllm()


def test_nothing_of_the_application_can_be_imported_beside_the_loaders(vllm_python):
    script = "import json, sys; from importlib.util import find_spec; print(json.dumps([*filter(find_spec, sys.argv[1:])]))"
    command = [vllm_python, "-P", "-c", script, "vllm", "reelabel", "pyarrow", *APPLICATION]

    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert found == ["vllm", "reelabel"]
