from __future__ import annotations

from dataclasses import replace

import pytest

from reelabel.errors import ConfigurationError
from reelabel_engine.protocol import EngineConfig
from reelabel_engine.tuning import Machine, ModelProfile, choose_tuning
from tasks.model.engine.vllm_backend import check_tuning
from tasks.model.identity import TINY_MODEL

GIB = 1024**3
CPU = Machine(is_cuda=False, free_bytes=16 * GIB, total_bytes=32 * GIB)
GPU = Machine(is_cuda=True, free_bytes=79 * GIB, total_bytes=80 * GIB)
SMALL = ModelProfile(kv_bytes=4096, widest_bytes=6144, max_tokens=2048, frames_per_token=2)
LARGE = ModelProfile(kv_bytes=57_344, widest_bytes=75_776, max_tokens=128_000, frames_per_token=2)
SEVEN_B = EngineConfig(model="Qwen/Qwen2.5-VL-7B-Instruct", num_frames=16)


def chosen(config=SEVEN_B, shape=LARGE, machine=CPU):
    return choose_tuning(config, shape, machine).arguments


def test_on_a_cpu_wider_models_take_smaller_steps():
    assert chosen(shape=SMALL)["max_num_batched_tokens"] > chosen(shape=LARGE)["max_num_batched_tokens"]


def test_the_kv_cache_takes_at_most_a_quarter_of_free_main_memory():
    crowded = Machine(is_cuda=False, free_bytes=4 * GIB, total_bytes=32 * GIB)

    arguments = chosen(machine=crowded)

    assert arguments["kv_cache_memory_bytes"] == GIB
    assert arguments["max_model_len"] == GIB // 57_344 // 32 * 32


def test_the_model_keeps_its_own_prompt_limit_if_memory_allows():
    assert chosen(shape=SMALL)["max_model_len"] == 2048


def test_on_a_cpu_live_sessions_get_room_for_two_prompts_each_if_memory_allows():
    live = replace(SEVEN_B, live_sessions=64)

    assert chosen(live, shape=SMALL)["kv_cache_memory_bytes"] == 2 * 64 * 2048 * 4096
    assert chosen(live, shape=SMALL)["max_model_len"] == 2048
    assert chosen(live, shape=LARGE)["kv_cache_memory_bytes"] == 4 * GIB


def test_on_a_gpu_a_step_holds_a_whole_video():
    long = EngineConfig(model="m", num_frames=128)

    assert chosen(machine=GPU)["max_num_batched_tokens"] == 16_384
    assert chosen(long, machine=GPU)["max_num_batched_tokens"] > 64 * 768


def test_gpu_memory_in_use_by_others_is_left_alone():
    shared = Machine(is_cuda=True, free_bytes=40 * GIB, total_bytes=80 * GIB)

    assert chosen(machine=GPU)["gpu_memory_utilization"] == 0.9
    assert chosen(machine=shared)["gpu_memory_utilization"] == 0.48


@pytest.mark.parametrize("total_gib", [8, 16, 24, 80])
@pytest.mark.parametrize("free", [0.999, 0.9, 0.511, 0.3])
def test_an_engine_is_not_given_more_than_cuda_and_nccl_leave_free(total_gib, free):
    machine = Machine(is_cuda=True, free_bytes=int(free * total_gib * GIB), total_bytes=total_gib * GIB)

    wanted = chosen(machine=machine)["gpu_memory_utilization"] * machine.total_bytes

    assert wanted <= 0.9 * machine.total_bytes
    assert wanted <= machine.free_bytes - 0.75 * GIB


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_settings_override_the_tuning(machine):
    config = EngineConfig(
        model="m",
        max_model_len=4096,
        max_num_seqs=7,
        max_num_batched_tokens=777,
        cpu_kv_cache_gib=2,
        gpu_memory_utilization=0.5,
        enforce_eager=machine.is_cuda,
    )

    arguments = chosen(config, machine=machine)

    assert arguments | {"max_model_len": 4096, "max_num_seqs": 7, "max_num_batched_tokens": 777} == arguments
    assert arguments["enforce_eager"] is machine.is_cuda
    assert arguments.get("kv_cache_memory_bytes", 2 * GIB) == 2 * GIB
    assert arguments.get("gpu_memory_utilization", 0.5) == 0.5


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        pytest.param({"max_num_seqs": 64, "max_num_batched_tokens": 32}, "max_num_batched_tokens", id="prompts"),
        pytest.param(
            {"cpu_kv_cache_gib": 1, "max_model_len": 100_000}, "model.engine_args.max_model_len", id="longest prompt"
        ),
        pytest.param({"cpu_kv_cache_gib": 1, "num_frames": 512}, "sampling.num_frames", id="a video"),
        pytest.param({"cpu_kv_cache_gib": 64}, "free memory", id="memory"),
    ],
)
def test_an_impossible_setting_is_named(options, settings):
    with pytest.raises(ConfigurationError, match=settings):
        chosen(EngineConfig(model="m", **options))


@pytest.mark.system
def test_the_doctor_reports_what_is_chosen_and_why():
    settings, reason = check_tuning(EngineConfig(model=str(TINY_MODEL), max_pixels=56 * 56, max_num_seqs=5))

    assert settings.ok
    assert "5 prompts per step" in settings.detail
    assert "bytes per token" in reason.detail


@pytest.mark.system
def test_the_doctor_names_impossible_settings():
    [refused] = check_tuning(EngineConfig(model=str(TINY_MODEL), cpu_kv_cache_gib=1024))

    assert not refused.ok
    assert "model.engine_args.cpu_kv_cache_gib" in refused.advice


@pytest.mark.parametrize("machine", [CPU, GPU])
@pytest.mark.parametrize(
    ("given", "tokens", "longest"),
    [
        ({}, 8_192, 8_192),
        ({"max_model_len": 20_000}, 20_000, 20_000),
        ({"max_num_batched_tokens": 4_096}, 4_096, 4_096),
    ],
)
def test_a_step_holds_the_longest_prompt_where_videos_are_pruned(machine, given, tokens, longest):
    config = EngineConfig(model="m", video_pruning_rate=0.5, num_frames=4, **given)

    arguments = choose_tuning(config, LARGE, machine).arguments

    assert (arguments["max_num_batched_tokens"], arguments["max_model_len"]) == (tokens, longest)
