"""Ray's own LLM processor asks vLLM about the frames that `PrepareVideo` has packed."""

import json
import subprocess
import sys

import pytest

from tests.reelabel.ray_data.llm_processor import CHOICES, CLIPS

pytestmark = pytest.mark.system


def test_packed_videos_are_answered_by_rays_llm_processor(tmp_path):
    command = [sys.executable, "-m", "tests.reelabel.ray_data.llm_processor", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)

    assert done.returncode == 0, done.stderr[-5000:]
    answered = json.loads(done.stdout.splitlines()[-1])
    assert len(answered) == CLIPS
    assert [row["answer"] for row in answered] == ["ABCD"[CHOICES.index(row["truth"])] for row in answered]
