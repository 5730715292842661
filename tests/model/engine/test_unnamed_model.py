"""Without a model named, nothing answers: the sentence names one that fits this machine."""

import pytest

from infra.settings import Settings
from reelabel.errors import ConfigurationError
from tasks.embedding.encoder import read_encoder_info
from tasks.model.engine.vllm_backend import VLLM

UNNAMED = {"model": {"name": None}, "describe": {"model": None}}


@pytest.mark.parametrize(
    ("gpus", "machine", "model"),
    [
        pytest.param(["81000, 81559"], "this GPU of 80 GiB", "Qwen/Qwen2.5-VL-7B-Instruct", id="H100"),
        pytest.param(["22000, 23034"], "this GPU of 22 GiB", "Qwen/Qwen2.5-VL-7B-Instruct", id="L4"),
        pytest.param(["15000, 15360"], "this GPU of 15 GiB", "Qwen/Qwen2.5-VL-3B-Instruct", id="T4"),
        pytest.param(["8000, 8192"], "this GPU of 8 GiB", "Qwen/Qwen2-VL-2B-Instruct", id="small"),
        pytest.param([], "this machine", "Qwen/Qwen2-VL-2B-Instruct", id="no GPU"),
    ],
)
def test_a_model_that_is_not_named_is_refused_with_one_that_fits_the_gpu(tmp_path, monkeypatch, gpus, machine, model):
    lines = "\n".join(f"echo '0, GPU-a, [N/A], {gpu}'" for gpu in gpus)
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{lines}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0" if gpus else "")

    with pytest.raises(ConfigurationError) as raised:
        VLLM.model_info(None, Settings(**UNNAMED))

    assert raised.value.message == (
        "No model is named; set REELABEL_MODEL_NAME, or name one for this run: --model, or model in a form. "
        f"For {machine}: `export REELABEL_MODEL_NAME={model}`."
    )


def test_an_image_text_model_that_is_not_named_is_refused():
    with pytest.raises(ConfigurationError, match=r"No image-text model is named; .*`export REELABEL_DESCRIBE_MODEL="):
        read_encoder_info(Settings(**UNNAMED))


def test_doctor_says_that_no_model_is_named():
    model = next(VLLM.diagnose(Settings(**UNNAMED)))

    assert (model.name, model.ok) == ("model", False)
    assert model.advice.startswith("No model is named; ")
