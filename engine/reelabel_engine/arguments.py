"""The arguments of `vllm.LLM`: those of the configuration, and what short answers need."""

from __future__ import annotations

import json
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reelabel_engine.devices import gpu_memory_bytes

if TYPE_CHECKING:
    from reelabel_engine.protocol import EngineConfig

_MIB = 1024**2
PRUNING_METHOD = "evs"  # Efficient Video Sampling
_PRUNED_TOKENS = 16_384  # of a prompt with a pruned video, unless the model or `engine_args` allow fewer or more
_FIT_MEMORY = -1  # tells vLLM to allow the longest prompt that fits into memory
_CPU = {
    "max_num_batched_tokens": 1024,  # more would push activations out of the CPU's cache
    "max_num_seqs": 128,
    "block_size": 32,  # the smallest that CPU attention takes; larger ones would share less of short prompts
    "kv_cache_memory_bytes": 512 * _MIB,
    "enforce_eager": True,  # compilation takes most of a minute
}
_GPU = {
    "max_num_seqs": 256,
    "compilation_config": {"cudagraph_mode": "PIECEWISE"},  # graphs of decoding steps would never be used
}
_MAX_GPU_SHARE = 0.9  # of the GPU's memory
_SPARE, _SPARE_BYTES = 0.02, 768 * _MIB  # CUDA's own and NCCL's memory, which is not free by then


def vllm_arguments(config: EngineConfig) -> dict[str, Any]:
    """Build the arguments of `vllm.LLM`; raises as `choose_arguments`."""
    import torch  # noqa: PLC0415 - takes seconds, and is the engine's

    return choose_arguments(config, has_gpu=torch.cuda.is_available())


def choose_arguments(config: EngineConfig, *, has_gpu: bool) -> dict[str, Any]:
    """Choose the arguments; those of `config.engine_args` take precedence, but for what pruning needs.

    Raises:
        ConfigurationError: The driver of a GPU does not answer.
    """
    return {
        "model": config.model,
        "revision": config.revision,
        "dtype": config.dtype,
        "tensor_parallel_size": config.tensor_parallel_size,
        "load_format": config.load_format,
        "max_model_len": _FIT_MEMORY,
        "limit_mm_per_prompt": {"image": config.shown_images, "video": config.shown_videos},
        "logprobs_mode": "raw_logprobs",  # over the whole vocabulary, so that it shows what the choices have of it
        "max_logprobs": -1,
        "enable_prefix_caching": True,
        "mm_processor_cache_gb": 0,  # a video's questions are rendered together, outside the engine
        "seed": 0,
        # An engine has one grammar compiler, for all schemas; models may write endless whitespace where it is allowed.
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        **({"scheduling_policy": "priority"} if config.live_sessions else {}),
        **(_GPU | {"gpu_memory_utilization": free_share(*gpu_memory_bytes())} if has_gpu else _CPU),
        **(_adapter(Path(config.adapter)) if config.adapter else {}),
        **config.engine_args,
        **(_pruning(config) if config.video_pruning_rate else {}),
    }


def _adapter(folder: Path) -> dict[str, Any]:
    from reelabel_engine.vllm_api import LORA_RANKS  # noqa: PLC0415 - as torch

    rank = json.loads((folder / "adapter_config.json").read_text())["r"]
    return {"enable_lora": True, "max_lora_rank": min((each for each in LORA_RANKS if each >= rank), default=rank)}


def free_share(free_bytes: int, total_bytes: int) -> float:
    """Return the share of a GPU's memory that an engine may use: vLLM refuses to start if it is not free."""
    if not total_bytes:
        return _MAX_GPU_SHARE
    free = floor(100 * (free_bytes - max(_SPARE * total_bytes, _SPARE_BYTES)) / total_bytes) / 100
    return min(_MAX_GPU_SHARE, max(free, _SPARE))


def _pruning(config: EngineConfig) -> dict[str, Any]:
    from transformers import AutoConfig  # noqa: PLC0415 - as torch

    text = AutoConfig.from_pretrained(config.model, revision=config.revision).get_text_config()
    limits = {name: value for name, value in config.engine_args.items() if isinstance(value, int) and value > 0}
    longest = limits.get("max_model_len")
    if longest is None:  # unset, or a special value such as `_FIT_MEMORY`
        longest = min(limits.get("max_num_batched_tokens", _PRUNED_TOKENS), text.max_position_embeddings)
    return {
        "video_pruning_rate": config.video_pruning_rate,
        "video_pruning_method": PRUNING_METHOD,
        # vLLM corrects the positions after a pruned video only when it computes the video: a question that found it
        # in the cache would be answered with wrong positions. Nor may a step begin at the first token of the video, so
        # a step must hold the longest prompt.
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
        "max_model_len": longest,
        "max_num_batched_tokens": limits.get("max_num_batched_tokens", longest),
    }
