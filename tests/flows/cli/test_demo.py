"""The demo, as a new user runs it: its own services, the deployment, one summary, nothing left behind."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.command_line import reelabel_process
from tests.supervisor import processes_of

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "home"


@pytest.fixture(scope="module")
def environment(home):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("REELABEL_", "PREFECT_"))}
    return clean | {"REELABEL_HOME": str(home), "COLUMNS": "80"}


@pytest.fixture(scope="module")
def run(environment):
    return subprocess.run(
        [sys.executable, "-m", "flows.cli.main", "demo", "--clips", "24"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_the_demo_runs_through_its_deployment_and_reconciles(run):
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Deployed classify/on-demand, classify/nightly, " in run.stdout
    assert "Reconciled: 72 jobs = 72 labels + 0 failures." in run.stdout
    assert "Reconciled: 24 jobs = 24 descriptions + 0 failures." in run.stdout
    assert "/runs/flow-run/" not in run.stdout  # of a server that has been stopped


def test_the_answers_of_the_demo_are_correct(run):
    correct = [int(number) for number in re.findall(r"accuracy: \w+ +│ [\d.]+ \((\d+) of 24\)", run.stdout)]
    assert len(correct) == 3
    assert min(correct) >= 22


def test_the_demo_stops_what_it_started(run, home):
    assert "Stopped the services" in run.stdout
    assert processes_of(home) == []


def test_the_secrets_of_the_demo_are_private(run, home):
    assert run.returncode == 0
    assert home.stat().st_mode & 0o077 == 0


def test_the_tags_of_the_demo_are_correct(run, environment):
    runs = dict(re.findall(r"^(\w+): .* results ([0-9a-f]{8})$", "\n".join(run.stdout.splitlines()[-3:]), re.MULTILINE))
    answered, described = (
        json.loads(reelabel_process(environment, "results", runs[what], "--format", "json").stdout)
        for what in ("Labels", "Descriptions")
    )
    known = {row["job_id"]: row["answer"] for row in answered}
    first = {row["job_id"]: json.loads(row["tags"])[0]["text"] for row in described}

    right = [tag == f"a {known[f'{clip}-colour']} {known[f'{clip}-shape']}" for clip, tag in first.items()]

    assert len(right) == 24
    assert sum(right) >= 0.95 * len(right)
