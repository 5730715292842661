"""Pairs of frames side by side give the engine the inputs of the whole video."""

import json
from pathlib import Path

import pytest

from tests.engine_python import run_by_engine

pytestmark = pytest.mark.system

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    run_by_engine(Path(__file__).with_name("compare_inputs.py"), folder, cwd=folder)
    return json.loads((folder / "compared.json").read_text())


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_positions_and_pixels_are_those_of_the_whole_video_at_every_rate(compared, family):
    differing = {fps: same for fps, same in compared[family].items() if not all(same.values())}

    assert len(compared[family]) == 10
    assert differing == {}


def test_audio_among_frames_is_what_the_model_was_trained_on(compared):
    found = compared["audio"]

    assert found["runs"] == [[True, 288], [False, 50], [True, 288], [False, 50]]  # two seconds each
    assert found["tokens"]
    assert found["positions"]
    assert found["pixels"]
    # A spectrum's last columns look ahead, and a span does not: at its end, and at the beginning of the next one.
    assert set(found["differing"]) <= {198, 199, 200, 201}


def test_a_model_that_nobody_has_tried_is_refused_when_it_is_loaded(compared):
    refused = {name: text for name, text in compared.items() if name.endswith("refused")}

    assert refused.keys() == {"glm4v refused"}
    assert (
        "families Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen2.5-Omni, but this one is glm4v; use"
        in refused["glm4v refused"]
    )
