"""The images: what the Dockerfile linter says and what their scripts do; no image is built."""

import os
import re
import stat
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

from infra.settings import StoreSettings
from reelabel.seal import NO_KEY

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "infra" / "docker"
HADOLINT = Path(sysconfig.get_path("scripts")) / "hadolint"


def run(*command, **environment):
    return subprocess.run(
        [str(part) for part in command],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_linter_finds_nothing_in_the_images():
    found = run(HADOLINT, "--config", DOCKER / "hadolint.yaml", DOCKER / "Dockerfile")

    assert (found.returncode, found.stdout) == (0, "")


def test_every_copied_folder_and_file_exists_and_reaches_the_build():
    let_in = {line[1:].rstrip("/") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    copied = re.findall(
        r"^COPY (?:--chmod=\d+ )?((?!--)[^\n]+) \S+$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE
    )

    for path in " ".join(copied).split():
        assert (ROOT / path).exists(), path
        assert path.partition("/")[0] in let_in, path


def test_the_build_has_every_file_of_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    needed |= {*wheel["packages"], *wheel["force-include"]}
    stage = (DOCKER / "Dockerfile").read_text().partition(" AS wheel\n")[2].partition("\nFROM ")[0]
    copied = {path.rstrip("/") for line in re.findall(r"^COPY (.*) \S+$", stage, re.MULTILINE) for path in line.split()}

    assert needed <= copied


def test_everything_that_images_install_is_locked_by_hash():
    for name in re.findall(r"requirements/[\w-]+\.txt", (DOCKER / "Dockerfile").read_text()):
        packages = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
        assert packages
        assert all("==" in package and "--hash=sha256:" in package for package in packages), name


def test_the_entry_point_reads_secrets_from_files(tmp_path):
    (tmp_path / "login").write_text("admin:$(id) 'p\"ss'\n")

    shown = run(
        DOCKER / "entrypoint.sh",
        *("sh", "-c", 'printf %s "$PREFECT_API_AUTH_STRING${PREFECT_API_AUTH_STRING_FILE-}"'),
        PREFECT_API_AUTH_STRING_FILE=str(tmp_path / "login"),
    )

    assert shown.stdout == "admin:$(id) 'p\"ss'"


def test_the_entry_point_names_a_missing_file():
    completed = run(DOCKER / "entrypoint.sh", "true", PREFECT_API_AUTH_STRING_FILE="/run/secrets/nothing")

    assert completed.returncode == 2
    assert "PREFECT_API_AUTH_STRING_FILE: cannot read /run/secrets/nothing" in completed.stderr


@pytest.mark.parametrize(
    ("command", "is_elsewhere"),
    [("prefect worker start --pool cpu", False), ("prefect flow-run execute", True)],
)
def test_what_executes_a_flow_run_copies_no_weights(tmp_path, command, is_elsewhere):
    (tmp_path / "prefect").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "prefect").chmod(0o755)

    begun = run(DOCKER / "entrypoint.sh", *command.split(), PATH=f"{tmp_path}:{os.environ['PATH']}")

    folder = Path(begun.stdout.strip())
    assert (folder != Path.cwd()) == is_elsewhere
    assert not is_elsewhere or not list(folder.iterdir())


def test_the_gpu_image_names_a_missing_model():
    stage = (DOCKER / "Dockerfile").read_text().partition("FROM runtime AS gpu")[2]
    [required] = re.findall(r"REQUIRED_VARIABLES=(\S+)", stage)

    refused = run(DOCKER / "entrypoint.sh", "true", REQUIRED_VARIABLES=required, REELABEL_MODEL_NAME="")
    begun = run(DOCKER / "entrypoint.sh", "true", REQUIRED_VARIABLES=required, REELABEL_MODEL_NAME="some/model")

    assert (refused.returncode, begun.returncode) == (2, 0)
    assert refused.stderr.startswith("REELABEL_MODEL_NAME is not set")


@pytest.fixture
def secrets(tmp_path):
    completed = run(DOCKER / "make_secrets.sh", tmp_path / "secrets")
    assert completed.returncode == 0, completed.stderr
    return tmp_path / "secrets"


def test_secrets_are_created_once_and_privately(secrets):
    before = {path.name: path.read_text() for path in secrets.iterdir()}

    run(DOCKER / "make_secrets.sh", secrets)

    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    logins = [name for name in before if name.endswith("_url")]
    assert len({before[name].split("@")[0] for name in logins}) == len(logins) == 4
    assert not any(before["postgres_password"] in before[name] for name in logins)
    assert before["reelabel_store_secret_access_key"] in before["s3_identities.json"]
    assert StoreSettings(mac_key=before["reelabel_store_mac_key"]).seal != NO_KEY
