"""Ray's own LLM processor asks vLLM about the videos that `PrepareRequest` prepares."""

import json

import pytest

from tests.engine_python import link_beside_engine, run_by_engine
from tests.reelabel.ray_data.llm_processor import CHOICES, CLIPS

pytestmark = pytest.mark.system


def test_requests_about_videos_are_answered_by_rays_llm_processor_and_a_missing_video_fails_alone(tmp_path):
    beside = link_beside_engine(("ray[data,serve]", "polars", "pytest"), tmp_path / "beside")
    module = ["-m", "tests.reelabel.ray_data.llm_processor", tmp_path]
    completed = run_by_engine(*module, beside=[beside], capture_output=True, text=True, timeout=800, check=False)

    assert completed.returncode == 0, completed.stderr[-5000:]
    rows = json.loads(completed.stdout.splitlines()[-1])
    [failed] = [row["__inference_error__"] for row in rows if row["answer"] is None]
    answered = [row for row in rows if row["answer"] is not None]
    assert failed.startswith("There is no video at /gone.mp4")
    assert len(answered) == CLIPS
    assert [row["answer"] for row in answered] == ["ABCD"[CHOICES.index(row["truth"])] for row in answered]
