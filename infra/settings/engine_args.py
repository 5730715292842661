"""Arguments passed to vLLM, or to chat templates, unchanged: which are allowed, and which can change an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, JsonValue

if TYPE_CHECKING:
    from collections.abc import Mapping

# Arguments with a setting of their own.
_SETTINGS = {
    "model": "model.name",
    "revision": "model.revision",
    "default_mm_loras": "model.name to the adapter's folder",
    "dtype": "model.dtype",
    "enable_lora": "model.name to the adapter's folder",
    "tensor_parallel_size": "model.tensor_parallel_size",
    "video_pruning_rate": "model.video_pruning_rate",
}
# Arguments that Reelabel sets itself; with other values, answers would be wrong or missing.
_FIXED = {
    "enable_prefix_caching",
    "limit_mm_per_prompt",
    "load_format",
    "logprobs_mode",
    "max_logprobs",
    "mm_processor_cache_gb",
    "runner",
    "scheduling_policy",
    "seed",
    "skip_tokenizer_init",
    "video_pruning_method",
}
# Arguments of chat templates, and of what applies them, that Reelabel sets itself.
_OF_PROMPTS = {"add_generation_prompt", "conversation", "messages", "model_config", "tokenize", "tokenizer"}
# Arguments that affect only speed, or how long prompts may be; all others may change answers, and are part of the spec.
_PERFORMANCE = {
    "async_scheduling",
    "block_size",
    "compilation_config",
    "cpu_offload_gb",
    "cudagraph_capture_sizes",
    "data_parallel_size",
    "disable_custom_all_reduce",
    "disable_log_stats",
    "distributed_executor_backend",
    "download_dir",
    "enable_chunked_prefill",
    "enable_expert_parallel",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "max_cudagraph_capture_size",
    "max_cpu_loras",
    "max_lora_rank",
    "max_loras",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "max_parallel_loading_workers",
    "mm_encoder_tp_mode",
    "num_gpu_blocks_override",
    "pipeline_parallel_size",
    "safetensors_load_strategy",
    "swap_space",
    "use_tqdm_on_load",
}


def check_engine_args(arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Raise ValueError for arguments that are set elsewhere, or would have no effect."""
    for name in arguments:
        if name in _SETTINGS:
            raise ValueError(f"{name} is a setting of its own; set {_SETTINGS[name]} instead")
        if name in _FIXED:
            raise ValueError(f"{name} must stay as Reelabel sets it; leave it out")
    ranks = arguments.get("pipeline_parallel_size", 1)  # by which engines share the GPUs
    if type(ranks) is not int or ranks < 1:
        raise ValueError(f"pipeline_parallel_size is a number of GPUs, not {ranks!r}")
    return arguments


def check_template_args(arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Raise ValueError for arguments that a prompt sets itself."""
    if ours := arguments.keys() & _OF_PROMPTS:
        raise ValueError(f"{min(ours)} must stay as Reelabel sets it; leave it out")
    return arguments


TemplateArgs = Annotated[dict[str, JsonValue], AfterValidator(check_template_args)]
EngineArgs = Annotated[dict[str, JsonValue], AfterValidator(check_engine_args)]


def args_of_answers(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: value for name, value in sorted(arguments.items()) if name not in _PERFORMANCE}


def args_of_performance(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: value for name, value in arguments.items() if name in _PERFORMANCE}
