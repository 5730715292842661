"""Prompts rendered without the library's processor equal those rendered with it."""

import json
from pathlib import Path

import pytest

from tests.engine_python import run_by_engine

pytestmark = pytest.mark.system

QWEN = ("qwen2_vl float32", "qwen2_5_vl float32", "qwen2_vl bfloat16", "qwen2_5_vl bfloat16")
SIZED = ("even", "odd", "alone")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    run_by_engine(Path(__file__).with_name("compare_layouts.py"), folder, cwd=folder)
    return json.loads((folder / "compared.json").read_text())


@pytest.mark.parametrize("family", QWEN)
@pytest.mark.parametrize("shown", SIZED)
def test_a_repeated_size_is_laid_out_as_by_the_processor(compared, family, shown):
    first, later = (
        [each for each in compared[family][shown] if bool(each["video"]) is later] for later in (False, True)
    )

    assert first[0]["taken"] is False
    assert later
    assert all(each["taken"] and each["same"] for each in later)


@pytest.mark.parametrize("family", QWEN)
def test_a_question_that_spells_the_video_token_is_laid_out_like_any_other(compared, family):
    *_, naming = (each for each in compared[family]["even"] if not each["video"])

    assert naming == {"video": 0, "taken": True, "same": True}


@pytest.mark.parametrize("family", QWEN)
@pytest.mark.parametrize("shown", ["scaled", "too large"])
def test_frames_that_the_processor_scales_are_left_to_it(compared, family, shown):
    assert not any(each["taken"] for each in compared[family][shown])


def test_other_processors_lay_out_everything_themselves(compared):
    assert not any(each["taken"] for prompts in compared["qwen3_vl bfloat16"].values() for each in prompts)
