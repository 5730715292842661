"""Arguments that are handed to vLLM as they are: which of them may be, and which can change an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from infra.validation import first_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

# What settings of their own decide.
_SETTINGS = {
    "model": "model.name",
    "revision": "model.revision",
    "dtype": "model.dtype",
    "tensor_parallel_size": "model.tensor_parallel_size",
    "video_pruning_rate": "model.video_pruning_rate",
}


class Tuning(BaseModel):
    """Arguments that Reelabel chooses by model and memory where they are missing; `cpu_kv_cache_gib` is its own."""

    model_config = ConfigDict(strict=True)

    max_model_len: int | None = Field(None, ge=128)
    max_num_seqs: int | None = Field(None, ge=1, le=4096)
    max_num_batched_tokens: int | None = Field(None, ge=32, le=1_048_576)
    cpu_kv_cache_gib: int | None = Field(None, ge=1, le=1024)
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    enforce_eager: bool | None = None


# Without what Reelabel sets here, answers are wrong or missing.
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
# These change how fast an answer comes, not which one; everything else may change it, and is part of the spec.
_PERFORMANCE = {
    *Tuning.model_fields,
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
    "kv_cache_memory_bytes",
    "max_cudagraph_capture_size",
    "max_parallel_loading_workers",
    "mm_encoder_tp_mode",
    "num_gpu_blocks_override",
    "pipeline_parallel_size",
    "safetensors_load_strategy",
    "swap_space",
    "use_tqdm_on_load",
}


def check_engine_args(arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse arguments that are set elsewhere, are out of bounds, or would have no effect.

    Raises:
        ValueError: There is one.
    """
    for name in arguments:
        if name in _SETTINGS:
            raise ValueError(f"{name} is a setting of its own; set {_SETTINGS[name]} instead")
        if name in _FIXED:
            raise ValueError(f"{name} must stay as Reelabel sets it; leave it out")
        if "lora" in name:
            raise ValueError(f"{name} has no effect, as no question names an adapter; merge it into the model's folder")
    try:
        Tuning.model_validate(tuning_of(arguments))
    except ValidationError as error:
        where, value, clause = first_fault(error)
        raise ValueError(f"{where} {value!r} {clause}") from None
    return arguments


EngineArgs = Annotated[dict[str, JsonValue], AfterValidator(check_engine_args)]


def tuning_of(arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return the arguments that Reelabel chooses where they are missing; the others are handed to vLLM as they are."""
    return {name: value for name, value in arguments.items() if name in Tuning.model_fields}


def args_of_answers(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the arguments that can change an answer."""
    return {name: value for name, value in sorted(arguments.items()) if name not in _PERFORMANCE}


def args_of_performance(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the other arguments."""
    return {name: value for name, value in arguments.items() if name in _PERFORMANCE}
