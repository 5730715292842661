"""Our loaders through `LLM.chat`, for users of nothing else of ours."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.model.engine.process import engine_environment
from tasks.model.identity import TINY_MODEL
from tasks.model.protocol import EngineConfig
from tests.reelabel.vllm.conftest import MEDIA, SAMPLING, chat_about

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("loaders")]

GOOD = ("video file", "video data", "frame file", "frame data")


@pytest.fixture(scope="module")
def answered(asked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    engine = {
        "model": str(TINY_MODEL),
        "enforce_eager": True,
        "block_size": 32,
        "limit_mm_per_prompt": {"image": 0, "video": 1},
        "logprobs_mode": "processed_logprobs",
        "allowed_local_media_path": str(asked.folder),
        "media_io_kwargs": MEDIA,
    }
    (folder / "asked.json").write_text(
        json.dumps(
            {
                "engine": engine,
                "allowed": asked.allowed,
                "chats": [chat_about(url) for url in asked.urls.values()],
                "video": str(asked.folder / "clip.mp4"),
                "options": SAMPLING,
            }
        )
    )
    script = Path(__file__).with_name("chat_with_vllm.py")
    environment = engine_environment(EngineConfig(model=str(TINY_MODEL))) | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    command = [sys.executable, str(script), str(folder / "asked.json"), str(folder / "answers.json")]
    subprocess.run(command, check=True, env=environment, cwd=folder)
    answers = json.loads((folder / "answers.json").read_text())
    return answers | {"answers": dict(zip(asked.urls, answers["answers"], strict=True))}


@pytest.mark.parametrize("form", GOOD)
def test_a_video_and_its_frame_file_get_the_answers_of_our_engine(asked, answered, form):
    logprobs = answered["answers"][form]["logprobs"]

    assert asked.probabilities(logprobs) == pytest.approx(asked.expected, abs=1e-5)


def test_repeated_picks_carry_their_true_positions_in_the_video(answered):
    assert answered["metadata"] == {
        "fps": 12.0,
        "duration": 4.0,
        "total_num_frames": 48,
        "frames_indices": [0, 0, 12, 24, 24, 36],
        "video_backend": "reelabel",
        "do_sample_frames": False,
    }
    assert answered["each once"]["frames_indices"] == [0, 12, 24, 36]


@pytest.mark.parametrize(
    ("form", "words"), [("no video", "FFmpeg cannot open the video"), ("cut frame file", "frame file")]
)
def test_an_unreadable_video_is_refused_in_one_sentence(answered, form, words):
    answer = answered["answers"][form]

    assert answer["error"] == "VLLMUnprocessableEntityError"
    assert words in answer["message"]
