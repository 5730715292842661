"""Our loaders through `LLM.chat`, where `pip install reelabel` added them to vLLM."""

import json
import subprocess
from pathlib import Path

import pytest

from reelabel_engine.environment import engine_environment
from reelabel_engine.protocol import EngineConfig
from tasks.model.identity import TINY_MODEL
from tests.reelabel.vllm.conftest import MEDIA, SAMPLING, chat_about

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("loaders")]

GOOD = ("video file", "video data")
FRAME_FILES = ("frame file", "frame data")


@pytest.fixture(scope="module")
def answered(chat_inputs, vllm_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    engine = {
        "model": str(TINY_MODEL),
        "enforce_eager": True,
        "block_size": 32,
        "limit_mm_per_prompt": {"image": 0, "video": 1},
        "logprobs_mode": "processed_logprobs",
        "allowed_local_media_path": str(chat_inputs.folder),
        "media_io_kwargs": MEDIA,
    }
    (folder / "request.json").write_text(
        json.dumps(
            {
                "engine": engine,
                "allowed": chat_inputs.allowed,
                "chats": [chat_about(url) for url in chat_inputs.urls.values()],
                "video": str(chat_inputs.folder / "clip.mp4"),
                "options": SAMPLING,
            }
        )
    )
    script = Path(__file__).with_name("chat_with_vllm.py")
    environment = engine_environment(EngineConfig(model=str(TINY_MODEL))) | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    command = [str(vllm_python), str(script), str(folder / "request.json"), str(folder / "answers.json")]
    subprocess.run(command, check=True, env=environment, cwd=folder)
    answers = json.loads((folder / "answers.json").read_text())
    return answers | {"answers": dict(zip(chat_inputs.urls, answers["answers"], strict=True))}


@pytest.mark.parametrize("form", GOOD)
def test_a_video_gets_the_answers_of_our_engine(chat_inputs, answered, form):
    logprobs = answered["answers"][form]["logprobs"]

    assert chat_inputs.probabilities(logprobs) == pytest.approx(chat_inputs.expected, abs=1e-5)


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
    assert answered["by its other name"] == answered["metadata"]


@pytest.mark.parametrize(
    ("form", "message"), [("no video", "FFmpeg cannot open the video"), ("cut frame file", "frame file")]
)
def test_an_unreadable_video_is_refused_in_one_sentence(answered, form, message):
    answer = answered["answers"][form]

    assert answer["error"] == "VLLMUnprocessableEntityError"
    assert message in answer["message"]


@pytest.mark.parametrize("form", FRAME_FILES)
def test_a_frame_file_is_refused_with_the_extra_that_reads_it(answered, form):
    answer = answered["answers"][form]

    assert answer["error"] == "VLLMValidationError"
    assert "-m pip install 'pyarrow>=21'`" in answer["message"]


def test_no_scheduler_store_or_database_is_imported(answered):
    assert {"reelabel", "vllm", "av"} <= {*answered["modules"]}
    assert not {"prefect", "sqlalchemy", "boto3", "polars", "pyarrow"} & {*answered["modules"]}
