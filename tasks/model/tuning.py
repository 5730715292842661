"""Engine settings for one-token answers, chosen by model, device and memory.

Nothing is decoded after the first token. What matters is how many prompt tokens a step takes, and that the
prefix which the questions on one video share stays cached. See docs/tuning.md for the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.errors import ConfigurationError

if TYPE_CHECKING:
    from tasks.model.questions import EngineConfig
    from tasks.model.shape import Machine, ModelProfile

_MIB, _GIB = 1024**2, 1024**3
_QUESTION_TOKENS = 256
_CPU_BLOCK_TOKENS = 32  # CPU attention takes multiples of 32; larger blocks would cache less of short prompts
_CPU_STEP_BYTES = 16 * _MIB
_CPU_STEP_TOKENS = 256
_CPU_SEQS = 64
_CPU_KV_SHARE = 0.25  # of free memory; weights and decoding processes need the rest
_CPU_KV_BYTES = 256 * _MIB
_STEPS_KEPT = 4
_CUDA_STEP_TOKENS = {70 * _GIB: 16_384, 0: 8_192}  # vLLM's defaults for offline use, by GPU memory
_CUDA_SHARE = 0.9
_CUDA_SPARE = 0.02
_CACHED_QUESTION_TOKENS = 64
_FIT_MEMORY = -1  # tells vLLM to use the longest prompt that fits into memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Engine settings, chosen or configured.

    Attributes:
        arguments: Arguments of `vllm.LLM`.
        values: The same for display, in one line.
        reason: Why they were chosen, in one line.
    """

    arguments: dict[str, Any]
    values: str
    reason: str


def choose_tuning(config: EngineConfig, shape: ModelProfile, machine: Machine) -> Tuning:
    """Choose the settings that the configuration leaves open.

    Args:
        config: The configuration; values that are set take precedence.
        shape: The model's dimensions.
        machine: The machine that it runs on.

    Raises:
        ConfigurationError: Settings contradict each other, or do not fit into memory.
    """
    tuning = _for_cuda(config, shape, machine) if machine.is_cuda else _for_cpu(config, shape, machine)
    seqs, tokens = tuning.arguments["max_num_seqs"], tuning.arguments["max_num_batched_tokens"]
    if seqs > tokens:
        raise ConfigurationError(
            f"model.max_num_seqs ({seqs}) exceeds model.max_num_batched_tokens ({tokens}), but each prompt takes at "
            "least one token; lower the former or raise the latter.",
        )
    return tuning


def _for_cpu(config: EngineConfig, shape: ModelProfile, machine: Machine) -> Tuning:
    """Size steps so that activations stay in the CPU's cache, and the KV cache for a few steps' prompts."""
    prompt_tokens = shape.video_tokens(config) + _QUESTION_TOKENS
    in_cache = _CPU_STEP_BYTES // shape.widest_bytes
    tokens = config.max_num_batched_tokens or max(in_cache, _CPU_STEP_TOKENS, config.max_num_seqs or 0)
    seqs = config.max_num_seqs or min(_CPU_SEQS, tokens)
    kept_tokens = _STEPS_KEPT * max(tokens, prompt_tokens)
    kv_bytes = _cpu_kv_bytes(config, shape, machine, kept_tokens=kept_tokens)
    is_eager = config.enforce_eager is not False
    longest = _longest_prompt(config, shape, prompt_tokens=prompt_tokens, kv_bytes=kv_bytes)
    return Tuning(
        arguments={
            "max_num_batched_tokens": tokens,
            "max_num_seqs": seqs,
            "max_model_len": longest,
            "kv_cache_memory_bytes": kv_bytes,
            "block_size": _CPU_BLOCK_TOKENS,
            "enforce_eager": is_eager,
        },
        values=f"{tokens:,} tokens and {seqs} prompts per step, prompts up to {longest:,} tokens, "
        f"{kv_bytes / _GIB:.2g} GiB of KV cache, {'not ' if is_eager else ''}compiled",
        reason=f"a step's widest activation ({shape.widest_bytes:,} bytes per token) stays in the CPU's cache; the KV "
        f"cache ({shape.kv_bytes:,} bytes per token) holds the prompts of {_STEPS_KEPT} steps, and the longest prompt "
        "if memory allows",
    )


def _cpu_kv_bytes(config: EngineConfig, shape: ModelProfile, machine: Machine, *, kept_tokens: int) -> int:
    if config.cpu_kv_cache_gib is None:
        wanted = shape.kv_bytes * max(kept_tokens, config.max_model_len or shape.max_tokens)
        return int(max(_CPU_KV_BYTES, min(wanted, machine.free_bytes * _CPU_KV_SHARE)))
    kv_bytes = config.cpu_kv_cache_gib * _GIB
    if kv_bytes > machine.free_bytes:
        raise ConfigurationError(
            f"model.cpu_kv_cache_gib ({config.cpu_kv_cache_gib}) exceeds the {machine.free_bytes / _GIB:.1f} GiB "
            "of free memory; lower it, or leave it unset.",
        )
    return kv_bytes


def _longest_prompt(config: EngineConfig, shape: ModelProfile, *, prompt_tokens: int, kv_bytes: int) -> int:
    """Return the longest prompt that the KV cache holds, up to the model's limit."""
    held = kv_bytes // (shape.kv_bytes * _CPU_BLOCK_TOKENS) * _CPU_BLOCK_TOKENS
    wanted = config.max_model_len or min(shape.max_tokens, prompt_tokens)
    if held < wanted:
        raise ConfigurationError(
            f"The KV cache of {kv_bytes / _GIB:.2g} GiB holds {held:,} tokens, but a prompt may have {wanted:,}; raise "
            "model.cpu_kv_cache_gib, or lower model.max_model_len, sampling.num_frames or sampling.max_pixels.",
        )
    return config.max_model_len or min(shape.max_tokens, held)


def _for_cuda(config: EngineConfig, shape: ModelProfile, machine: Machine) -> Tuning:
    """Choose steps that hold whole videos; skip the CUDA graphs for decoding, which never happens."""
    prompt_tokens = shape.video_tokens(config) + _QUESTION_TOKENS
    usual = next(tokens for least_bytes, tokens in _CUDA_STEP_TOKENS.items() if machine.total_bytes >= least_bytes)
    tokens = config.max_num_batched_tokens or max(usual, prompt_tokens)
    seqs = config.max_num_seqs or max(1, tokens // _CACHED_QUESTION_TOKENS)
    share = config.gpu_memory_utilization or _free_share(machine)
    return Tuning(
        arguments={
            "max_num_batched_tokens": tokens,
            "max_num_seqs": seqs,
            "max_model_len": config.max_model_len or _FIT_MEMORY,
            "gpu_memory_utilization": share,
            "enforce_eager": bool(config.enforce_eager),
            "compilation_config": {} if config.enforce_eager else {"cudagraph_mode": "PIECEWISE"},
        },
        values=f"{tokens:,} tokens and {seqs} prompts per step, {share:.0%} of the GPU's memory, "
        f"{'no' if config.enforce_eager else 'piecewise'} CUDA graphs",
        reason=f"a step holds a whole video (at most {shape.video_tokens(config):,} tokens) or the questions on "
        "cached ones; one-token answers need no decoding steps, so their CUDA graphs are not captured",
    )


def _free_share(machine: Machine) -> float:
    """Return the share of memory that is free: vLLM refuses to start if it is given more."""
    if not machine.total_bytes:
        return _CUDA_SHARE
    free = machine.free_bytes / machine.total_bytes - _CUDA_SPARE
    return round(min(_CUDA_SHARE, max(free, _CUDA_SPARE)), 2)
