"""Positions of a second are counted as vLLM's models count them."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5OmniConfig, Qwen2VLConfig, Qwen3OmniMoeConfig
from vllm.model_executor.models.qwen2_5_omni_thinker import Qwen2_5OmniThinkerForConditionalGeneration
from vllm.model_executor.models.qwen3_omni_moe_thinker import Qwen3OmniMoeThinkerForConditionalGeneration

from reelabel_engine.positions import positions_per_s
from reelabel_engine.vllm_api import MultiModalFieldElem, MultiModalKwargsItem, PlaceholderRange


@pytest.mark.parametrize(
    ("model", "config"),
    [
        (Qwen3OmniMoeThinkerForConditionalGeneration, Qwen3OmniMoeConfig()),
        (
            Qwen3OmniMoeThinkerForConditionalGeneration,
            Qwen3OmniMoeConfig(thinker_config={"position_id_per_seconds": 13}),
        ),
        (Qwen2_5OmniThinkerForConditionalGeneration, Qwen2_5OmniConfig()),
        (
            Qwen2_5OmniThinkerForConditionalGeneration,
            Qwen2_5OmniConfig(thinker_config={"vision_config": {"tokens_per_second": 50}}),
        ),
    ],
)
def test_a_second_of_an_omni_model_has_as_many_positions_as_in_vllm(model, config):
    values = {"video_grid_thw": torch.tensor([2, 4, 4]), "second_per_grid_ts": torch.tensor(1.0)}
    data = MultiModalKwargsItem({name: MultiModalFieldElem(data=value, field=None) for name, value in values.items()})
    video = SimpleNamespace(modality="video", data=data, mm_position=PlaceholderRange(offset=0, length=8))
    unloaded = model.__new__(model)
    torch.nn.Module.__init__(unloaded)
    unloaded.config = config.thinker_config

    [(_, _, positions)] = unloaded.iter_mm_features([video])

    assert positions_per_s(config) == positions_per_s(config.thinker_config) == positions["t_factor"]


def test_other_models_say_it_of_their_vision_or_count_one():
    assert positions_per_s(Qwen2_5_VLConfig()) == 4
    assert positions_per_s(Qwen2VLConfig()) == 1
