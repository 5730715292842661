"""Which arguments are handed to vLLM, and which of them are part of the spec."""

import pytest
from pydantic import ValidationError

from flows.run.spec import engine_settings, make_spec
from infra.settings import ModelSettings, Settings
from reelabel.errors import ConfigurationError
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import TINY_MODEL, read_model_info
from tests.model.adapters import make_adapter

ANSWERS = {"quantization": "fp8", "mm_processor_kwargs": {"max_pixels": 4096}}
PERFORMANCE = {"block_size": 64, "max_model_len": 4096, "pipeline_parallel_size": 2}
OF_ADAPTERS = {"max_lora_rank": 64, "max_loras": 1, "max_cpu_loras": 1}


def settings_of(**model):
    return Settings(model=ModelSettings(name=str(TINY_MODEL), **model))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("dtype", "dtype is a setting of its own; set model.dtype instead"),
        ("model", "set model.name instead"),
        ("logprobs_mode", "logprobs_mode must stay as Reelabel sets it; leave it out"),
        ("enable_lora", "set model.name to the adapter's folder instead"),
    ],
)
def test_an_argument_that_is_set_elsewhere_is_refused(name, fault):
    with pytest.raises(ValidationError, match=fault):
        ModelSettings(engine_args={name: 1})


@pytest.mark.parametrize("ranks", ["two", 0, -1, 2.0, True, None])
def test_a_number_of_gpus_that_is_none_is_refused(ranks):
    with pytest.raises(ValidationError, match="pipeline_parallel_size is a number of GPUs, not "):
        ModelSettings(engine_args={"pipeline_parallel_size": ranks})


@pytest.mark.parametrize("name", ["add_generation_prompt", "conversation", "messages", "tokenize"])
def test_an_argument_that_a_prompt_sets_itself_is_refused(name):
    with pytest.raises(ValidationError, match=f"{name} must stay as Reelabel sets it; leave it out"):
        ModelSettings(chat_template_args={name: True})


def test_arguments_reach_the_engine_and_those_that_change_answers_the_spec():
    settings, model_info = settings_of(engine_args=ANSWERS | PERFORMANCE), read_model_info(str(TINY_MODEL))
    plain, spec = make_spec(model_info, settings_of()), make_spec(model_info, settings)

    assert spec.engine_args == ANSWERS
    assert spec.spec_id != plain.spec_id
    assert make_spec(model_info, settings_of(engine_args=PERFORMANCE)).spec_id == plain.spec_id
    assert engine_config(model_info, engine_settings(settings, spec)).engine_args == ANSWERS | PERFORMANCE
    # A backfill of an earlier run has that run's arguments, and this machine's means to be fast.
    again = make_spec(model_info, settings, base=plain)
    assert again.engine_args == {}
    assert engine_config(model_info, engine_settings(settings, again)).engine_args == PERFORMANCE


def test_arguments_of_adapters_need_one_and_its_capacity_is_no_part_of_the_spec(tmp_path):
    adapter = read_model_info(str(make_adapter(tmp_path / "adapter", TINY_MODEL)))

    spec = make_spec(adapter, settings_of(engine_args=OF_ADAPTERS | {"lora_dtype": "float32"}))
    assert spec.engine_args == {"lora_dtype": "float32"}
    with pytest.raises(ConfigurationError, match="has lora_dtype, but model reelabel-tiny is no LoRA adapter; leave"):
        make_spec(read_model_info(str(TINY_MODEL)), settings_of(engine_args={"lora_dtype": "float32"}))


def test_arguments_of_the_chat_template_reach_spec_and_engine():
    settings, model_info = settings_of(chat_template_args={"enable_thinking": False}), read_model_info(str(TINY_MODEL))
    spec = make_spec(model_info, settings)

    assert spec.chat_template_args == {"enable_thinking": False}
    assert engine_config(model_info, engine_settings(settings_of(), spec)).chat_template_args == {
        "enable_thinking": False
    }


def test_a_server_takes_no_arguments_of_an_engine():
    settings = settings_of(backend="openai", engine_args=ANSWERS)

    with pytest.raises(ConfigurationError, match=r"openai takes no model\.engine_args, because its server has its own"):
        make_spec(read_model_info(str(TINY_MODEL)), settings)
