"""The arguments with which vLLM loads a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.model.shape import tune_engine

if TYPE_CHECKING:
    from tasks.model.questions import EngineConfig


def vllm_arguments(config: EngineConfig) -> dict[str, Any]:
    """Build the arguments of `vllm.LLM`.

    Raises:
        ConfigurationError: Settings contradict each other, or do not fit into memory.
    """
    return {
        "model": config.model,
        "revision": config.revision,
        "dtype": config.dtype,
        "tensor_parallel_size": config.tensor_parallel_size,
        "load_format": config.load_format,
        "limit_mm_per_prompt": {"image": 0, "video": 1},
        "logprobs_mode": "processed_logprobs",  # raw ones would count tokens that are not allowed
        "max_logprobs": -1,
        "enable_prefix_caching": True,
        "mm_processor_cache_gb": 0,  # a video's questions are rendered together, outside the engine
        "seed": 0,
    } | tune_engine(config).arguments
