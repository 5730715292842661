"""Ray's own LLM processor asks vLLM about the videos that `PrepareRequest` prepares."""

import json
import subprocess
import sys

import pytest

from tests.reelabel.ray_data.llm_processor import CHOICES, CLIPS

pytestmark = pytest.mark.system


def test_requests_about_videos_are_answered_by_rays_llm_processor_and_a_missing_video_fails_alone(tmp_path):
    command = [sys.executable, "-m", "tests.reelabel.ray_data.llm_processor", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)

    assert done.returncode == 0, done.stderr[-5000:]
    rows = json.loads(done.stdout.splitlines()[-1])
    [failed] = [row["__inference_error__"] for row in rows if row["answer"] is None]
    answered = [row for row in rows if row["answer"] is not None]
    assert failed.startswith("There is no video at /gone.mp4")
    assert len(answered) == CLIPS
    assert [row["answer"] for row in answered] == ["ABCD"[CHOICES.index(row["truth"])] for row in answered]
