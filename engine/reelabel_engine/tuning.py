"""Engine settings for prompts that are answered by one token: chosen by model, device and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reelabel.errors import ConfigurationError
from reelabel_engine.devices import gpu_memory_bytes

if TYPE_CHECKING:
    from reelabel_engine.protocol import EngineConfig


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
_CUDA_SPARE, _CUDA_SPARE_BYTES = 0.02, 768 * _MIB  # CUDA's own and NCCL's memory, which is not free by then
_CACHED_QUESTION_TOKENS = 64
PRUNING_METHOD = "evs"  # Efficient Video Sampling
_MOST_FRAMES = 1024
_PRUNED_STEP_TOKENS = 8_192
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
    """Choose the settings that the configuration leaves open, for a model of a shape on a machine.

    Raises:
        ConfigurationError: Settings contradict each other, or do not fit into memory.
    """
    if config.video_pruning_rate:
        config = _with_whole_prompts(config, shape)
    tuning = _for_cuda(config, shape, machine) if machine.is_cuda else _for_cpu(config, shape, machine)
    seqs, tokens = tuning.arguments["max_num_seqs"], tuning.arguments["max_num_batched_tokens"]
    if seqs > tokens:
        raise ConfigurationError(
            f"model.engine_args.max_num_seqs ({seqs}) exceeds model.engine_args.max_num_batched_tokens ({tokens}), but "
            "each prompt takes at least one token; lower the former or raise the latter.",
        )
    return tuning


def _with_whole_prompts(config: EngineConfig, shape: ModelProfile) -> EngineConfig:
    """Make a step hold the longest prompt.

    vLLM cannot correct the positions of a prompt with a pruned video if a step begins at the first token of the video.
    """
    usual = min(shape.max_tokens, max(shape.shown_tokens(config) + _QUESTION_TOKENS, _PRUNED_STEP_TOKENS))
    longest = min(config.max_model_len or usual, config.max_num_batched_tokens or shape.max_tokens)
    return replace(config, max_model_len=longest, max_num_batched_tokens=config.max_num_batched_tokens or longest)


def _for_cpu(config: EngineConfig, shape: ModelProfile, machine: Machine) -> Tuning:
    """Size steps so that activations stay in the CPU's cache, and the KV cache for a few steps' prompts."""
    prompt_tokens = shape.shown_tokens(config) + _QUESTION_TOKENS
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
        # A session has two prefixes: the current one, and the one that follows it.
        prompts = max(1, 2 * config.live_sessions)
        wanted = shape.kv_bytes * max(kept_tokens, prompts * (config.max_model_len or shape.max_tokens))
        return int(max(_CPU_KV_BYTES, min(wanted, machine.free_bytes * _CPU_KV_SHARE)))
    kv_bytes = config.cpu_kv_cache_gib * _GIB
    if kv_bytes > machine.free_bytes:
        raise ConfigurationError(
            f"model.engine_args.cpu_kv_cache_gib ({config.cpu_kv_cache_gib}) exceeds the "
            f"{machine.free_bytes / _GIB:.1f} GiB of free memory; lower it, or leave it unset.",
        )
    return kv_bytes


def _longest_prompt(config: EngineConfig, shape: ModelProfile, *, prompt_tokens: int, kv_bytes: int) -> int:
    """Return the longest prompt that the KV cache holds, up to the model's limit."""
    held = kv_bytes // (shape.kv_bytes * _CPU_BLOCK_TOKENS) * _CPU_BLOCK_TOKENS
    wanted = config.max_model_len or min(shape.max_tokens, prompt_tokens)
    if held < wanted:
        raise ConfigurationError(
            f"The KV cache of {kv_bytes / _GIB:.2g} GiB holds {held:,} tokens, but a prompt may have {wanted:,}; raise "
            "model.engine_args.cpu_kv_cache_gib, or lower model.engine_args.max_model_len, sampling.num_frames or "
            "sampling.max_pixels.",
        )
    return config.max_model_len or min(shape.max_tokens, held)


def _for_cuda(config: EngineConfig, shape: ModelProfile, machine: Machine) -> Tuning:
    """Choose steps that hold whole videos; skip the CUDA graphs for decoding, which never happens."""
    prompt_tokens = shape.shown_tokens(config) + _QUESTION_TOKENS
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
    """Return the share of memory that is free, rounded down: vLLM refuses to start if it is given more."""
    if not machine.total_bytes:
        return _CUDA_SHARE
    spare_bytes = max(_CUDA_SPARE * machine.total_bytes, _CUDA_SPARE_BYTES)
    free = floor(100 * (machine.free_bytes - spare_bytes) / machine.total_bytes) / 100
    return min(_CUDA_SHARE, max(free, _CUDA_SPARE))


_KIB = 1024
_WIDE_BYTES, _NARROW_BYTES = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """A model's dimensions.

    Attributes:
        kv_bytes: Bytes of KV cache per token.
        widest_bytes: Bytes of the widest activation per video token.
        max_tokens: Maximum tokens of a prompt and its answer.
        frames_per_token: Frames that share their tokens.
        frame_tokens: Maximum tokens per frame, for models that scale all frames to one fixed size; None if they
            depend on the frame's size.
    """

    kv_bytes: int
    widest_bytes: int
    max_tokens: int
    frames_per_token: int = 1
    frame_tokens: int | None = None

    def video_tokens(self, config: EngineConfig) -> int:
        """Return the maximum tokens of a video as the run samples it."""
        return -(-config.num_frames // self.frames_per_token) * self._tokens_of_frame(config)

    def shown_tokens(self, config: EngineConfig) -> int:
        """Return the maximum tokens of all that a question shows."""
        of_images = config.shown_images * self._tokens_of_frame(config)
        return config.shown_videos * self.video_tokens(config) + of_images

    def _tokens_of_frame(self, config: EngineConfig) -> int:
        return self.frame_tokens or config.max_pixels // config.size_multiple_px**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a model runs; memory is the GPU's, 0 if unknown, or else main memory."""

    is_cuda: bool
    free_bytes: int
    total_bytes: int


@cache
def tune_engine(config: EngineConfig) -> Tuning:
    """Choose settings for a configuration's model on this machine.

    Raises:
        ConfigurationError: Settings contradict each other, or do not fit into memory.
    """
    return choose_tuning(config, read_model_profile(config), read_machine())


def read_model_profile(config: EngineConfig) -> ModelProfile:
    """Read a model's dimensions from its configuration."""
    from transformers import AutoConfig  # noqa: PLC0415 - takes seconds, and is the engine's

    whole = AutoConfig.from_pretrained(config.model, revision=config.revision)
    text, vision = whole.get_text_config(), getattr(getattr(whole, "thinker_config", whole), "vision_config", None)
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    head = getattr(text, "head_dim", None) or text.hidden_size // heads
    # `auto` loads a 32-bit model in 16 bits, as vLLM does.
    size = _WIDE_BYTES if config.dtype == "float32" else _NARROW_BYTES
    patches = getattr(vision, "spatial_merge_size", 1) ** 2
    widths = (
        text.hidden_size,
        2 * getattr(text, "intermediate_size", 0),
        patches * 2 * getattr(vision, "intermediate_size", 0),
    )
    return ModelProfile(
        kv_bytes=2 * text.num_hidden_layers * -(-kv_heads // config.tensor_parallel_size) * head * size,
        widest_bytes=max(widths) * size,
        max_tokens=config.max_model_len or text.max_position_embeddings,
        frames_per_token=getattr(vision, "temporal_patch_size", 1),
        frame_tokens=_frame_tokens(whole, vision),
    )


def _frame_tokens(whole: Any, vision: Any) -> int | None:  # noqa: ANN401 - configurations of transformers
    if hasattr(vision, "spatial_merge_size") or not hasattr(vision, "image_size"):
        return None
    if hasattr(whole, "image_seq_length"):
        return int(whole.image_seq_length)
    side_px, patch_px = vision.image_size, vision.patch_size
    if isinstance(side_px, (list, tuple)):
        side_px, patch_px = max(side_px), min(patch_px)
    return int(side_px // patch_px) ** 2  # some pool their patches afterwards, which leaves fewer


def read_machine() -> Machine:
    """Read the memory of the GPUs that torch sees, or the main memory."""
    import torch  # noqa: PLC0415 - takes seconds, and is the engine's

    if torch.cuda.is_available():
        free_bytes, total_bytes = gpu_memory_bytes()
        return Machine(is_cuda=True, free_bytes=free_bytes, total_bytes=total_bytes)
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    memory = {words[0]: int(words[1]) * _KIB for words in lines}
    return Machine(is_cuda=False, free_bytes=memory["MemAvailable:"], total_bytes=memory["MemTotal:"])


def vllm_arguments(config: EngineConfig) -> dict[str, Any]:
    """Build the arguments of `vllm.LLM`.

    Raises:
        ConfigurationError: Settings contradict each other, or do not fit into memory.
    """
    arguments = {
        "model": config.model,
        "revision": config.revision,
        "dtype": config.dtype,
        "tensor_parallel_size": config.tensor_parallel_size,
        "load_format": config.load_format,
        "limit_mm_per_prompt": {
            # Samplers by time may show more frames than are estimated.
            "image": _MOST_FRAMES if config.frames_as_images else config.shown_images,
            "video": config.shown_videos,
        },
        "logprobs_mode": "raw_logprobs",  # over the whole vocabulary, so that it shows what the choices have of it
        "max_logprobs": -1,
        "enable_prefix_caching": True,
        "mm_processor_cache_gb": 0,  # a video's questions are rendered together, outside the engine
        "seed": 0,
        **({"scheduling_policy": "priority"} if config.live_sessions else {}),
        **(_pruning(config.video_pruning_rate) if config.video_pruning_rate else {}),
    }
    return arguments | tune_engine(config).arguments | config.engine_args


def _pruning(rate: float) -> dict[str, Any]:
    return {
        "video_pruning_rate": rate,
        "video_pruning_method": PRUNING_METHOD,
        # vLLM corrects the positions after a pruned video only where it computes the video: a question that found it
        # in the cache would be answered by wrong ones. Nor may it begin a step inside a prompt: see above.
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
    }
