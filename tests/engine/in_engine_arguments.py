"""The arguments of vLLM where videos are pruned."""

import pytest
from transformers import Qwen2_5_VLConfig

from reelabel_engine.arguments import vllm_arguments
from reelabel_engine.protocol import EngineConfig


@pytest.mark.parametrize(
    ("engine_args", "tokens", "longest"),
    [
        ({}, 16_384, 16_384),
        ({"max_model_len": 32_768}, 32_768, 32_768),
        ({"max_model_len": -1}, 16_384, 16_384),
        ({"max_num_batched_tokens": 4_096}, 4_096, 4_096),
        ({"max_num_batched_tokens": 4_096, "max_model_len": -1}, 4_096, 4_096),
        ({"max_num_batched_tokens": 4_096, "max_model_len": 2_048}, 4_096, 2_048),
    ],
)
def test_a_step_holds_the_longest_prompt_where_videos_are_pruned(tmp_path, engine_args, tokens, longest):
    Qwen2_5_VLConfig(text_config={"max_position_embeddings": 128_000}).save_pretrained(tmp_path)

    arguments = vllm_arguments(EngineConfig(model=str(tmp_path), video_pruning_rate=0.5, engine_args=engine_args))

    assert (arguments["max_num_batched_tokens"], arguments["max_model_len"]) == (tokens, longest)
    assert not arguments["enable_chunked_prefill"]
