"""The GPU benchmark at its smallest, on a CPU."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.models import MEDIUM, QWEN_3B, QWEN_7B, write_qwen
from benchmarks.pipeline.contender import CEILING, UNIFORM, WARM
from tasks.model.identity import read_model_info
from tests.engine_python import run_by_engine

pytestmark = pytest.mark.system

_COUNT = """
import sys
import torch
from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration

with torch.device("meta"):
    model = Qwen2_5_VLForConditionalGeneration(AutoConfig.from_pretrained(sys.argv[1]))
print(sum(parameter.numel() for parameter in model.parameters()))
"""


@pytest.fixture(scope="module")
def measure(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    arguments = [
        "pipeline",
        "gpu",
        "--model",
        "tiny",
        "--questions",
        "4",
        "--sizes",
        "240x240",
        "--folder",
        str(folder),
        "--json",
    ]

    def run(*options):
        completed = subprocess.run(
            [sys.executable, "-m", "benchmarks", *arguments, *options],
            # One process less to start for each of vLLM's own engines.
            env=os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
        return json.loads(completed.stdout)

    return run


@pytest.fixture(scope="module")
def report(measure):
    return measure("--parts", "ceiling,warm,uniform,questions")


def test_every_contender_answers_every_question(report):
    rows = report["tables"][0]["rows"]

    assert {each["contender"]: each["jobs"] for each in rows} == dict.fromkeys((CEILING, WARM, UNIFORM), 4)
    assert all(each["jobs_per_s"] > 0 for each in rows)


def test_every_contender_gets_the_same_number_of_tokens(report):
    assert len({each["prompt_tokens"] for each in report["tables"][0]["rows"]}) == 1


def test_questions_on_one_video_share_its_tokens(report):
    rows = report["tables"][1]["rows"]

    assert [row["questions"] for row in rows] == [1, 8, 32]
    assert rows[-1]["cached_tokens"] > 0


def test_what_was_measured_is_kept_and_what_no_time_is_left_for_is_named(measure, report):
    again = measure("--parts", "ceiling,warm,uniform,questions,live", "--minutes", "0")

    assert again == report | {"not measured yet": ["live"]}


@pytest.mark.parametrize(
    ("qwen", "billions"),
    [
        pytest.param(QWEN_7B, 8.3, id="7B"),
        pytest.param(QWEN_3B, 3.8, id="3B"),
        pytest.param(MEDIUM, 0.1, id="100m"),
    ],
)
def test_an_architecture_has_about_as_many_parameters_as_its_name_says(tmp_path, qwen, billions):
    folder = write_qwen(qwen, tmp_path)

    counted = run_by_engine("-c", _COUNT, folder, capture_output=True, text=True).stdout

    assert int(counted.splitlines()[-1]) / 1e9 == pytest.approx(billions, abs=0.05)
    assert read_model_info(str(folder)).size_multiple_px == 28
