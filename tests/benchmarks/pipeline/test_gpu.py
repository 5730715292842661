"""What runs beside a GPU, at its smallest, on cores: one engine after another."""

import json
import os
import subprocess
import sys

import pytest

import tasks.model.cpu_site.sitecustomize  # noqa: F401 - before torchvision, which transformers imports
from benchmarks.pipeline.verdict import CEILING, COLD, UNIFORM
from benchmarks.qwen import QWEN_3B, QWEN_7B, write_qwen
from tasks.model.identity import read_model_card

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("gpu")]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    asked = ["--model", "tiny", "--questions", "4", "--sizes", "240x240", "--folder", str(folder), "--json"]
    asked += ["--ways", "ceiling,ours,uniform"]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *asked],
        # One process less to start for each of vLLM's own engines.
        env=os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_every_way_answers_every_question(report):
    [size] = report["sizes"]

    assert {way["way"]: way["jobs"] for way in size["ways"]} == dict.fromkeys((CEILING, COLD, UNIFORM), 4)
    assert all(way["jobs_per_s"] > 0 for way in size["ways"])


def test_every_way_is_asked_as_many_tokens(report):
    [size] = report["sizes"]

    assert len({way["prompt_tokens"] for way in size["ways"]}) == 1


@pytest.mark.parametrize(
    ("qwen", "billions"), [pytest.param(QWEN_7B, 8.3, id="7B"), pytest.param(QWEN_3B, 3.8, id="3B")]
)
def test_an_architecture_has_the_published_number_of_parameters(tmp_path, qwen, billions):
    import torch  # noqa: PLC0415
    from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration  # noqa: PLC0415

    folder = write_qwen(qwen, tmp_path)
    with torch.device("meta"):
        model = Qwen2_5_VLForConditionalGeneration(AutoConfig.from_pretrained(folder))

    assert sum(parameter.numel() for parameter in model.parameters()) / 1e9 == pytest.approx(billions, abs=0.05)
    assert read_model_card(str(folder)).size_multiple_px == 28
