"""Arguments of the chat template and of vLLM reach the engine, or are refused in one sentence."""

import shutil

import pytest

from reelabel.frames.frame_file import read_frames
from reelabel.integrations.vllm.video_input import video_input
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EngineConfig, PreviewRequest
from tasks.model.engine.process import EngineProcess, preview_prompt
from tasks.model.identity import TINY_MODEL
from tests.model.factories import frame_file, question


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "ending"),
    [({}, "assistant\n<think>\n"), ({"enable_thinking": False}, "assistant\n<think>\n\n</think>\n\n")],
    ids=["default", "off"],
)
def test_arguments_of_the_chat_template_reach_the_prompt(tmp_path, arguments, ending):
    model = tmp_path / "thinker"
    shutil.copytree(TINY_MODEL, model)
    template = model / "chat_template.jinja"
    off = "{% if enable_thinking is defined and enable_thinking is false %}{{ '\n</think>\n\n' }}{% endif %}"
    template.write_text(template.read_text() + "{{ '<think>\n' }}" + off)
    config = EngineConfig(model=str(model), chat_template_args=arguments)
    video = video_input(read_frames(frame_file(1)))

    shown = preview_prompt(PreviewRequest(config=config, question=question(), media=(video,)))

    assert shown.text.endswith(ending)


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"quantisation": "fp8"}, r"vLLM refuses an argument in model\.engine_args: .* 'quantisation'"),
        ({"kv_cache_dtype": "tiny"}, "ValidationError: cache_dtype: Input should be"),
        ({"kv_cache_memory_bytes": 2**18, "max_model_len": 2048}, "lower max_model_len in model.engine_args, give the"),
    ],
    ids=["name", "value", "no room for a prompt"],
)
def test_arguments_that_vllm_refuses_end_the_start_in_its_own_words(tmp_path, arguments, fault):
    config = EngineConfig(model=str(TINY_MODEL), engine_args=arguments)
    with (
        EngineProcess(config, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine,
        pytest.raises(ModelError, match=fault) as raised,
    ):
        engine.wait_ready()

    assert len(raised.value.message) < 600


@pytest.mark.system
def test_arguments_take_precedence_over_what_is_chosen(tmp_path):
    arguments = {"max_num_seqs": 7, "max_num_batched_tokens": 777, "kv_cache_memory_bytes": 2**20}
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32", engine_args=arguments)

    with EngineProcess(config, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine:
        info = engine.wait_ready()

    # A token of this model takes 2,048 bytes of the cache, of which vLLM keeps one block of 32 tokens for itself.
    assert info.max_model_len == 512 - 32
    assert info.tuning == "777 tokens and 7 prompts per step, prompts up to 480 tokens"
