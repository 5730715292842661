"""The arguments of vLLM, which those of the settings replace; `in_engine_arguments` has pruned videos."""

import pytest

from reelabel_engine.arguments import choose_arguments, free_share
from reelabel_engine.protocol import EngineConfig

GIB = 1024**3


@pytest.mark.parametrize("total_gib", [8, 16, 24, 80])
@pytest.mark.parametrize("free", [0.999, 0.9, 0.511, 0.3])
def test_an_engine_is_not_given_more_than_cuda_and_nccl_leave_free(total_gib, free):
    free_bytes, total_bytes = int(free * total_gib * GIB), total_gib * GIB

    wanted = free_share(free_bytes, total_bytes) * total_bytes

    assert wanted <= 0.9 * total_bytes
    assert wanted <= free_bytes - 0.75 * GIB


@pytest.mark.parametrize("free_bytes", [0, GIB // 2])
def test_an_engine_without_free_memory_asks_for_a_little_and_is_refused_by_vllm(free_bytes):
    assert free_share(free_bytes, 80 * GIB) == 0.02


def test_an_engine_on_a_gpu_whose_memory_is_unknown_gets_most_of_it():
    assert free_share(0, 0) == 0.9


def test_on_a_cpu_nothing_is_compiled_and_the_longest_prompt_that_fits_is_allowed():
    arguments = choose_arguments(EngineConfig(model="m", revision="r", dtype="float32"), has_gpu=False)

    assert arguments["enforce_eager"]
    assert (arguments["model"], arguments["revision"], arguments["dtype"]) == ("m", "r", "float32")
    assert (arguments["max_model_len"], arguments["kv_cache_memory_bytes"]) == (-1, 512 * 1024**2)
    assert (arguments["max_num_batched_tokens"], arguments["max_num_seqs"], arguments["block_size"]) == (1024, 128, 32)
    assert "gpu_memory_utilization" not in arguments


def test_on_a_gpu_an_engine_gets_what_is_free(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '0, GPU-a, [N/A], 40960, 81920'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    arguments = choose_arguments(EngineConfig(model="m"), has_gpu=True)

    assert arguments["gpu_memory_utilization"] == 0.48
    assert arguments["max_num_seqs"] == 256
    assert arguments.keys().isdisjoint({"enforce_eager", "kv_cache_memory_bytes"})


def test_answers_have_the_probabilities_of_all_tokens_and_the_cache_of_the_video():
    arguments = choose_arguments(EngineConfig(model="m"), has_gpu=False)

    assert (arguments["logprobs_mode"], arguments["max_logprobs"]) == ("raw_logprobs", -1)
    assert arguments["enable_prefix_caching"]
    assert (arguments["mm_processor_cache_gb"], arguments["seed"]) == (0, 0)
    assert arguments["structured_outputs_config"] == {"backend": "xgrammar", "disable_any_whitespace": True}
    assert "enable_lora" not in arguments
    assert "video_pruning_rate" not in arguments


@pytest.mark.parametrize(
    ("shown", "limits"),
    [
        ({}, {"image": 0, "video": 1}),
        ({"max_videos": 2, "max_images": 3}, {"image": 3, "video": 2}),
        ({"frames_as_images": True}, {"image": 1024, "video": 0}),
    ],
)
def test_an_engine_takes_as_many_videos_and_images_as_a_question_shows(shown, limits):
    assert choose_arguments(EngineConfig(model="m", **shown), has_gpu=False)["limit_mm_per_prompt"] == limits


def test_questions_of_live_sessions_go_first():
    assert "scheduling_policy" not in choose_arguments(EngineConfig(model="m"), has_gpu=False)
    assert choose_arguments(EngineConfig(model="m", live_sessions=1), has_gpu=False)["scheduling_policy"] == "priority"


@pytest.mark.parametrize("has_gpu", [False, True])
def test_the_arguments_of_the_settings_replace_any_other(monkeypatch, has_gpu):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    engine_args = {"max_model_len": 2048, "enforce_eager": False, "max_num_seqs": 7, "seed": 5, "of_a_later_vllm": "x"}

    arguments = choose_arguments(EngineConfig(model="m", engine_args=engine_args), has_gpu=has_gpu)

    assert engine_args.items() <= arguments.items()
