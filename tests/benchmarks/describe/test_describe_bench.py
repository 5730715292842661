"""The benches of descriptions on a few videos, with the tiny services of their own."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("describe_bench")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("bench"))


def run(*arguments):
    # In a process: its environment is its services' from then on.
    command = [sys.executable, "-m", "benchmarks", *arguments, "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in shown.stderr, shown.stderr
    return shown.returncode, json.loads(shown.stdout)


def test_videos_are_described_again_without_a_frame(folder):
    code, [first, again] = run("retag", "--videos", "16", "--folder", folder)

    assert code == 0
    assert (first["videos"], again["videos"], again["decoded"], again["embedded"]) == (16, 16, 0, 0)
    assert again["seconds"] > 0


def test_the_encoder_are_compared_with_the_flow(folder):
    code, found = run("describe", "--videos", "2", "--rounds", "1", "--folder", folder)

    assert code in {0, 1}  # whether targets are reached is not tested with two clips
    assert {row["name"] for row in found["rows"]} == {
        "extraction alone",
        "encoder alone",
        "describe, cold",
        "describe, frames cached",
    }
    assert min(row["frames"] for row in found["rows"]) > 0


def test_a_film_is_described_and_its_processes_are_measured(folder):
    code, [row] = run("film", "--hours", "0.02", "--folder", folder)

    assert (code, row["chunks"]) == (0, 8)
    assert set(row["peak_bytes"]) == {"flow", "decoding", "encoder"}
    assert min(row["peak_bytes"].values()) > 0
